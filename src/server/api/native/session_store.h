// SPDX-License-Identifier: Apache-2.0
// SessionStore keeps the tokens of conversations over /generate, so that clients send only what is
// new: a request with session_params goes on from an earlier request of its session, whose prompt
// and answer come before its own text. In memory alone: a restart closes all sessions.
//
// A session is a tree of turns, each named by its request's id; two turns may go on from one.
//
// Threading: thread-safe.
// Every holder of a key has names of its own: two may each have a session "a".
//
// Bounds:    kMaxSessions, and kMaxSessionBytes of tokens in one, of which more are refused;
//            kMaxBytes in all; of all three a holder has its share at most. Beyond its share of
//            bytes a holder's sessions that were unused for longest are closed, beyond kMaxBytes
//            those of the holder that has the most; each session's own time limit.
// Cost:      a copy of the tokens, and O(kMaxSessions) to look for sessions out of time.
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
  std::string id;                     // of the session
  std::optional<std::string> rid;     // the turn to go on from; none: a first turn
  std::optional<int64_t> offset;      // so many of its tokens; negative: without the last ones
  bool drop_previous_output = false;  // go on from its prompt, without its answer
  bool replace = false;               // forget what went on from it before; without rid: all turns
};

struct SessionOptions {
  std::string id;
  std::string holder;           // name of the key that may use it; "" without one
  int64_t capacity_tokens = 0;  // of a turn's prompt
  int64_t timeout_seconds = 0;  // unused for so long it is closed
};

class SessionStore : public std::enable_shared_from_this<SessionStore> {
 public:
  static constexpr size_t kMaxSessions = 1000;
  static constexpr size_t kMaxSessionBytes = size_t{32} << 20;
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  // `share`: ServerOptions::storage_share().
  explicit SessionStore(double share = 1) : share_(share) {}

  // Error: 400 when the holder has a session with this id, 429 when the holder has too many, 503
  // when all together have. `now` is in seconds since 1970, here and below.
  std::optional<ApiError> open(SessionOptions options, int64_t now) HEDDLE_EXCLUDES(mutex_);

  // False when `holder` has no such session. A turn being answered goes on, but is not kept.
  bool close(const std::string& id, const std::string& holder) HEDDLE_EXCLUDES(mutex_);

  // Puts before `prompt` what the turn goes on from. Where that is something, the prompt's first
  // token goes if it is `bos`. Error: 400, naming the field, when there is no such session or turn,
  // when the turn is still being answered, and when the prompt is longer than the session allows.
  std::optional<ApiError> extend(const SessionParams& params, const std::string& holder,
                                 std::optional<TokenId> bos, int64_t now,
                                 std::vector<TokenId>& prompt) HEDDLE_EXCLUDES(mutex_);

  // Begins the turn `rid`, whose prompt extend() has made. Error: as extend(), and 400 when the
  // session has a turn with this id or keeps too many tokens.
  std::optional<ApiError> begin(const SessionParams& params, const std::string& holder,
                                const std::string& rid, const std::vector<TokenId>& prompt,
                                int64_t now, std::unique_ptr<SessionTurn>& turn)
      HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] size_t size() const HEDDLE_EXCLUDES(mutex_);

 private:
  friend class SessionTurn;

  struct Turn {
    int64_t serial = 0;
    std::string parent;  // "": none
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

  // By holders and their names.
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

// A turn that is being answered. It is kept when its last event has come, and forgotten when it is
// destroyed before: its client left, or it failed.
//
// Threading: thread-confined.
class SessionTurn {
 public:
  // `session`: the holder and the id of its session.
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
