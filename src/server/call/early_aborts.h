// SPDX-License-Identifier: Apache-2.0
// EarlyAborts: remembers the ids that are aborted while calls wait for a worker or are parsed. A
// call's own ids are in its body, so only after parsing is it known whether an abort concerns it.
//
// Calls are numbered when their bodies have arrived. An abort applies to calls that arrived before
// it, either those of one holder of keys (holder_of()) or all. It is forgotten once each of them is
// parsed.
//
// Threading: confined to the I/O thread.
// Bounds:    at most kMaxIds pairs of an id and a holder, however often each is aborted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace heddle::server {

class EarlyAborts {
 public:
  // Limit for remembered ids. Further aborts are refused, because a client relies on an accepted
  // one.
  static constexpr size_t kMaxIds = 16384;

  // A call that is not parsed yet. Its destruction marks it as parsed.
  class Call {
   public:
    Call(EarlyAborts& aborts, int64_t number, std::string holder)
        : aborts_(aborts), number_(number), holder_(std::move(holder)) {}

    ~Call() { aborts_.end(number_); }

    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    [[nodiscard]] int64_t number() const { return number_; }

    [[nodiscard]] const std::string& holder() const { return holder_; }

   private:
    EarlyAborts& aborts_;
    const int64_t number_;
    const std::string holder_;
  };

  // Numbers a call that has arrived. Shared, because a std::function must be copyable. This object
  // outlives the call.
  std::shared_ptr<const Call> arrive(std::string holder = {});

  // Aborts the arrived calls, prompts and answers with this id: those of `holder`, or of all
  // holders. Returns false if there is no space to remember the id.
  [[nodiscard]] bool abort(std::string_view id,
                           const std::optional<std::string>& holder = std::nullopt);

  void abort_all() { all_before_ = next_number_; }

  [[nodiscard]] bool aborted(const std::string& id, const Call& call) const;

 private:
  struct Abort {
    std::string key;
    int64_t before;  // number of the first call to which the abort does not apply
  };

  void end(int64_t number);
  [[nodiscard]] bool concerns(const std::string& key, const Call& call) const;

  int64_t next_number_ = 0;
  int64_t all_before_ = 0;
  std::set<int64_t> waiting_;  // numbers of the calls that are not parsed
  // The latest abort of each key, by age, so that old ones can be forgotten.
  std::list<Abort> oldest_first_;
  // Aborts by key, which combines an id and its holder.
  std::unordered_map<std::string, std::list<Abort>::iterator> keys_;
};

}  // namespace heddle::server
