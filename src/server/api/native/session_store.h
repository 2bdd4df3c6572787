// SPDX-License-Identifier: Apache-2.0
// SessionStore: stores the tokens of conversations over /generate, so that clients only send what
// is new: a request with session_params continues an earlier request of its session, whose prompt
// and answer are put before the new text. Only in memory: a restart closes all sessions.
//
// A session is a tree of turns, each named by its request's id; several turns may continue the same
// one.
//
// Threading: thread-safe. Each holder of a key has its own session names: two may each have a
//            session "a".
//
// Bounds:    kMaxSessions; kMaxSessionBytes of tokens per session, beyond which requests are
//            refused; kMaxBytes in total. A holder may use its share of each. If a holder exceeds
//            its share of bytes, its sessions that were unused longest are closed; beyond kMaxBytes
//            those of the holder that uses most. Each session has its own time limit.
// Cost:      a copy of the tokens, and O(kMaxSessions) to find sessions whose time limit has
//            passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/request.h>

#include "core/mutex.h"
#include "server/http/api_error.h"

namespace heddle::server {

class SessionTurn;

// The field session_params of a request.
struct SessionParams {
  std::string id;                  // id of the session to continue
  std::optional<std::string> rid;  // id of the turn to continue; none: begin a first turn
  // Number of that turn's tokens to keep; negative: all except the last ones.
  std::optional<int64_t> offset;
  bool drop_previous_output = false;  // continue that turn's prompt without its answer
  // Forget turns that continued that turn before; without rid: forget all turns.
  bool replace = false;
};

struct SessionOptions {
  std::string id;
  std::string holder;           // name of the key that may use the session; "" without one
  int64_t capacity_tokens = 0;  // most tokens in the prompt of a turn
  int64_t timeout_seconds = 0;  // the session is closed if it is unused for so long
};

class SessionStore : public std::enable_shared_from_this<SessionStore> {
 public:
  static constexpr size_t kMaxSessions = 1000;
  static constexpr size_t kMaxSessionBytes = size_t{32} << 20;
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  // `share`: ServerOptions::storage_share().
  explicit SessionStore(double share = 1) : share_(share) {}

  // Opens a session. Error: 400 if the holder has a session with this id, 429 if the holder has too
  // many sessions, 503 if all holders together have. `now` is in seconds since 1970 in all
  // functions.
  std::optional<ApiError> open(SessionOptions options, int64_t now) HEDDLE_EXCLUDES(mutex_);

  // Closes a session. Returns false if `holder` has no such session. A turn that is being answered
  // continues but is not stored.
  bool close(const std::string& id, const std::string& holder) HEDDLE_EXCLUDES(mutex_);

  // Puts the tokens of the turn that `params` continues before `prompt`. If there are any, the
  // first token of `prompt` is dropped if it is `bos`. Error: 400, naming the field, if there is no
  // such session or turn, the turn is still being answered, or the prompt is longer than the
  // session allows.
  std::optional<ApiError> extend(const SessionParams& params, const std::string& holder,
                                 std::optional<TokenId> bos, int64_t now,
                                 std::vector<TokenId>& prompt) HEDDLE_EXCLUDES(mutex_);

  // Begins the turn `rid` with the prompt that extend() has built. Error: as for extend(), and 400
  // if the session already has a turn with this id or stores too many tokens.
  std::optional<ApiError> begin(const SessionParams& params, const std::string& holder,
                                const std::string& rid, const std::vector<TokenId>& prompt,
                                int64_t now, std::unique_ptr<SessionTurn>& turn)
      HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] size_t size() const HEDDLE_EXCLUDES(mutex_);

 private:
  friend class SessionTurn;

  struct Turn {
    int64_t serial = 0;
    std::string parent;  // id of the turn that this one continues; "": none
    std::vector<TokenId> prompt;
    std::vector<TokenId> output;
    bool ended = false;

    [[nodiscard]] size_t num_bytes() const;
  };

  struct Session {
    SessionOptions options;
    int64_t used = 0;
    size_t num_bytes = 0;
    std::map<std::string, Turn> turns;
  };

  // A session's holder and id.
  using Key = std::pair<std::string, std::string>;
  using Sessions = std::map<Key, Session>;

  Session* find(const std::string& id, const std::string& holder, int64_t now)
      HEDDLE_REQUIRES(mutex_);
  std::optional<ApiError> look_up(const SessionParams& params, const std::string& holder,
                                  int64_t now, Session*& session, Turn*& from)
      HEDDLE_REQUIRES(mutex_);
  void close_late(int64_t now) HEDDLE_REQUIRES(mutex_);
  void erase(Sessions::iterator session) HEDDLE_REQUIRES(mutex_);
  void forget_after(Session& session, const std::string& rid) HEDDLE_REQUIRES(mutex_);
  void forget_turn(Session& session, const std::string& rid) HEDDLE_REQUIRES(mutex_);
  void count_bytes(Session& session, int64_t change) HEDDLE_REQUIRES(mutex_);
  void make_room(const Key& kept) HEDDLE_REQUIRES(mutex_);
  bool close_oldest_of(const std::string& holder, const Key& kept) HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] size_t num_open(const std::string& holder) const HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] std::map<std::string, size_t> bytes_by_holder() const HEDDLE_REQUIRES(mutex_);

  void end_turn(const SessionTurn& turn, std::vector<TokenId> output) HEDDLE_EXCLUDES(mutex_);
  void drop_turn(const SessionTurn& turn) HEDDLE_EXCLUDES(mutex_);
  Session* find_turn(const SessionTurn& turn, Turn*& found) HEDDLE_REQUIRES(mutex_);

  const double share_;
  mutable Mutex mutex_;
  Sessions sessions_ HEDDLE_GUARDED_BY(mutex_);
  size_t num_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t next_serial_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

// A turn that is being answered. It is stored once its last event has arrived, and forgotten if it
// is destroyed before, because its client disconnected or it failed.
//
// Threading: thread-confined.
class SessionTurn {
 public:
  // `session`: holder and id of the session.
  SessionTurn(std::shared_ptr<SessionStore> store, std::pair<std::string, std::string> session,
              std::string rid, int64_t serial);
  ~SessionTurn();

  SessionTurn(const SessionTurn&) = delete;
  SessionTurn& operator=(const SessionTurn&) = delete;

  void add(const RequestEvent& event);

 private:
  friend class SessionStore;

  const std::shared_ptr<SessionStore> store_;
  const std::pair<std::string, std::string> session_;
  const std::string rid_;
  const int64_t serial_;
  std::vector<TokenId> output_;
  bool ended_ = false;
};

}  // namespace heddle::server
