// SPDX-License-Identifier: Apache-2.0
// EarlyAborts remembers the ids that were aborted while calls wait for a worker or are parsed. The
// calls' own ids are in bodies that are not parsed yet, so only then does it show which are meant.
//
// Calls are numbered once their bodies have arrived. An abort counts for those that arrived before
// it, of one holder of keys (holder_of()) or of all, and is forgotten once each of them is parsed.
//
// Threading: confined to the I/O thread.
// Bounds:    kMaxIds ids of holders are remembered at once, however often each is aborted.
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
  // A client whose abort was accepted relies on it: one more than these is refused.
  static constexpr size_t kMaxIds = 16384;

  // A call that is not parsed yet. Its end says that it is.
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

  // Shared, because a std::function must be copyable. This object outlives the call.
  std::shared_ptr<const Call> arrive(std::string holder = {});

  // Aborts the calls, prompts and answers with this id that have arrived, those of `holder` or of
  // all. False when there is no room to remember it.
  [[nodiscard]] bool abort(std::string_view id,
                           const std::optional<std::string>& holder = std::nullopt);

  void abort_all() { all_before_ = next_number_; }

  [[nodiscard]] bool aborted(const std::string& id, const Call& call) const;

 private:
  struct Abort {
    std::string key;
    int64_t before;  // the number of the first call that it does not concern
  };

  void end(int64_t number);
  [[nodiscard]] bool concerns(const std::string& key, const Call& call) const;

  int64_t next_number_ = 0;
  int64_t all_before_ = 0;
  std::set<int64_t> waiting_;      // the calls that are not parsed
  std::list<Abort> oldest_first_;  // the latest abort of each key, to forget it in time
  std::unordered_map<std::string, std::list<Abort>::iterator> keys_;  // of ids and their holders
};

}  // namespace heddle::server
