// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/session_store.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/http/key_ring.h"

namespace heddle::server {

size_t SessionStore::Turn::num_bytes() const {
  constexpr size_t kOverhead = 512;  // estimated bytes of a turn's names and map nodes
  return kOverhead + (prompt.size() + output.size()) * sizeof(TokenId);
}

std::optional<ApiError> SessionStore::open(SessionOptions options, int64_t now) {
  const MutexLock lock(mutex_);
  close_late(now);
  Key key{options.holder, options.id};
  if (sessions_.contains(key)) {
    return invalid_value("session_id", fmt::format("There is a session `{}` already.", options.id));
  }
  if (const size_t num_own = num_open(options.holder);
      share_ < 1 && num_own >= share_of(kMaxSessions, share_)) {
    return ApiError{.status = 429,
                    .code = "too_many_sessions",
                    .message = fmt::format("{} sessions of this key are open, as many as one key "
                                           "may have. Close some with /close_session.",
                                           num_own),
                    .retry_after_seconds = 4};
  }
  if (sessions_.size() >= kMaxSessions) {
    return ApiError{.status = 503,
                    .code = "queue_full",
                    .message = fmt::format("{} sessions are open. Close some with /close_session.",
                                           sessions_.size()),
                    .retry_after_seconds = 4};
  }
  Session& session = sessions_[std::move(key)];
  session.options = std::move(options);
  session.used = now;
  return std::nullopt;
}

bool SessionStore::close(const std::string& id, const std::string& holder) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find({holder, id});
  if (found == sessions_.end()) return false;
  erase(found);
  return true;
}

std::optional<ApiError> SessionStore::extend(const SessionParams& params, const std::string& holder,
                                             std::optional<TokenId> bos, int64_t now,
                                             std::vector<TokenId>& prompt) {
  const MutexLock lock(mutex_);
  Session* session = nullptr;
  Turn* from = nullptr;
  if (auto error = look_up(params, holder, now, session, from)) return error;
  if (from != nullptr) {
    std::vector<TokenId> before = from->prompt;
    if (!params.drop_previous_output) {
      before.insert(before.end(), from->output.begin(), from->output.end());
    }
    if (params.offset) {
      const int64_t size = std::ssize(before);
      const int64_t end = *params.offset < 0 ? size + *params.offset : *params.offset;
      before.resize(static_cast<size_t>(std::clamp<int64_t>(end, 0, size)));
    }
    const bool drops_first = !before.empty() && !prompt.empty() && bos && prompt.front() == *bos;
    before.insert(before.end(), prompt.begin() + (drops_first ? 1 : 0), prompt.end());
    prompt = std::move(before);
  }
  if (std::ssize(prompt) > session->options.capacity_tokens) {
    return invalid_value(
        "session_params.id",
        fmt::format("The prompt has {} tokens with what it goes on from; the session `{}` was "
                    "opened with capacity_of_str_len {}.",
                    prompt.size(), params.id, session->options.capacity_tokens));
  }
  return std::nullopt;
}

std::optional<ApiError> SessionStore::begin(const SessionParams& params, const std::string& holder,
                                            const std::string& rid,
                                            const std::vector<TokenId>& prompt, int64_t now,
                                            std::unique_ptr<SessionTurn>& turn) {
  const MutexLock lock(mutex_);
  Session* session = nullptr;
  Turn* from = nullptr;
  if (auto error = look_up(params, holder, now, session, from)) return error;
  const std::string parent = params.rid.value_or("");
  if (params.replace) forget_after(*session, parent);
  if (session->turns.contains(rid)) {
    return invalid_value("rid",
                         fmt::format("The session `{}` has a turn `{}` already.", params.id, rid));
  }
  const int64_t serial = ++next_serial_;
  Turn begun{.serial = serial, .parent = parent, .prompt = prompt};
  const size_t max_bytes = std::min(kMaxSessionBytes, share_of(kMaxBytes, share_));
  if (session->num_bytes + begun.num_bytes() > max_bytes) {
    return invalid_value(
        "session_params.id",
        fmt::format("The session `{}` keeps {} turns, {} MiB of tokens; more than {} MiB are not "
                    "kept. Forget some with `replace`, or open another session.",
                    params.id, session->turns.size(), session->num_bytes >> 20, max_bytes >> 20));
  }
  session->used = now;
  count_bytes(*session, static_cast<int64_t>(begun.num_bytes()));
  session->turns.emplace(rid, std::move(begun));
  const Key key{holder, params.id};
  make_room(key);
  turn = std::make_unique<SessionTurn>(shared_from_this(), key, rid, serial);
  return std::nullopt;
}

size_t SessionStore::size() const {
  const MutexLock lock(mutex_);
  return sessions_.size();
}

SessionStore::Session* SessionStore::find(const std::string& id, const std::string& holder,
                                          int64_t now) {
  close_late(now);
  const auto found = sessions_.find({holder, id});
  return found != sessions_.end() ? &found->second : nullptr;
}

std::optional<ApiError> SessionStore::look_up(const SessionParams& params,
                                              const std::string& holder, int64_t now,
                                              Session*& session, Turn*& from) {
  session = find(params.id, holder, now);
  if (session == nullptr) {
    return invalid_value("session_params.id",
                         fmt::format("There is no session `{}`: it was closed, was unused for too "
                                     "long, or was never opened. Open one with /open_session.",
                                     params.id));
  }
  if (!params.rid) return std::nullopt;
  const auto turn = session->turns.find(*params.rid);
  if (turn == session->turns.end()) {
    return invalid_value("session_params.rid",
                         fmt::format("The session `{}` has no turn `{}`.", params.id, *params.rid));
  }
  if (!turn->second.ended) {
    return invalid_value("session_params.rid",
                         fmt::format("The turn `{}` is still being answered.", *params.rid));
  }
  from = &turn->second;
  return std::nullopt;
}

void SessionStore::close_late(int64_t now) {
  for (auto next = sessions_.begin(); next != sessions_.end();) {
    const auto session = next++;
    if (now - session->second.used > session->second.options.timeout_seconds) erase(session);
  }
}

void SessionStore::erase(Sessions::iterator session) {
  num_bytes_ -= session->second.num_bytes;
  sessions_.erase(session);
}

void SessionStore::forget_after(Session& session, const std::string& rid) {
  std::multimap<std::string, std::string> children;
  for (const auto& [name, turn] : session.turns) children.emplace(turn.parent, name);
  std::vector<std::string> pending = {rid};
  while (!pending.empty()) {
    const std::string parent = std::move(pending.back());
    pending.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      forget_turn(session, child->second);
      pending.push_back(child->second);
    }
  }
}

void SessionStore::forget_turn(Session& session, const std::string& rid) {
  const auto turn = session.turns.find(rid);
  count_bytes(session, -static_cast<int64_t>(turn->second.num_bytes()));
  session.turns.erase(turn);
}

void SessionStore::count_bytes(Session& session, int64_t change) {
  session.num_bytes += static_cast<size_t>(change);
  num_bytes_ += static_cast<size_t>(change);
}

void SessionStore::make_room(const Key& kept) {
  const size_t max_own_bytes = share_of(kMaxBytes, share_);
  while (bytes_by_holder()[kept.first] > max_own_bytes && close_oldest_of(kept.first, kept)) {
  }
  while (num_bytes_ > kMaxBytes) {
    std::vector<std::pair<size_t, std::string>> holders;
    for (const auto& [holder, num_bytes] : bytes_by_holder()) {
      holders.emplace_back(num_bytes, holder);
    }
    std::ranges::sort(holders, std::greater<>());
    bool closed = false;
    for (size_t i = 0; i < holders.size() && !closed; ++i) {
      closed = close_oldest_of(holders[i].second, kept);
    }
    if (!closed) return;
  }
}

// Closes the session of the holder that was unused longest. Returns false if only `kept` has
// tokens.
bool SessionStore::close_oldest_of(const std::string& holder, const Key& kept) {
  auto oldest = sessions_.end();
  for (auto session = sessions_.lower_bound({holder, ""});
       session != sessions_.end() && session->first.first == holder; ++session) {
    if (session->first == kept || session->second.num_bytes == 0) continue;
    if (oldest == sessions_.end() || session->second.used < oldest->second.used) oldest = session;
  }
  if (oldest == sessions_.end()) return false;
  erase(oldest);
  return true;
}

size_t SessionStore::num_open(const std::string& holder) const {
  size_t count = 0;
  for (auto session = sessions_.lower_bound({holder, ""});
       session != sessions_.end() && session->first.first == holder; ++session) {
    ++count;
  }
  return count;
}

std::map<std::string, size_t> SessionStore::bytes_by_holder() const {
  std::map<std::string, size_t> bytes;
  for (const auto& [key, session] : sessions_) bytes[key.first] += session.num_bytes;
  return bytes;
}

// The session of a turn; null if the turn was forgotten, even if another one has its name now.
SessionStore::Session* SessionStore::find_turn(const SessionTurn& turn, Turn*& found) {
  const auto session = sessions_.find(turn.session_);
  if (session == sessions_.end()) return nullptr;
  const auto kept = session->second.turns.find(turn.rid_);
  if (kept == session->second.turns.end() || kept->second.serial != turn.serial_) return nullptr;
  found = &kept->second;
  return &session->second;
}

void SessionStore::end_turn(const SessionTurn& turn, std::vector<TokenId> output) {
  const MutexLock lock(mutex_);
  Turn* ended = nullptr;
  Session* const session = find_turn(turn, ended);
  if (session == nullptr) return;
  const auto before = static_cast<int64_t>(ended->num_bytes());
  ended->output = std::move(output);
  ended->ended = true;
  count_bytes(*session, static_cast<int64_t>(ended->num_bytes()) - before);
  make_room(turn.session_);
}

void SessionStore::drop_turn(const SessionTurn& turn) {
  const MutexLock lock(mutex_);
  Turn* dropped = nullptr;
  if (Session* const session = find_turn(turn, dropped)) forget_turn(*session, turn.rid_);
}

SessionTurn::SessionTurn(std::shared_ptr<SessionStore> store,
                         std::pair<std::string, std::string> session, std::string rid,
                         int64_t serial)
    : store_(std::move(store)),
      session_(std::move(session)),
      rid_(std::move(rid)),
      serial_(serial) {}

SessionTurn::~SessionTurn() {
  if (!ended_) store_->drop_turn(*this);
}

void SessionTurn::add(const RequestEvent& event) {
  output_.insert(output_.end(), event.tokens.begin(), event.tokens.end());
  if (!event.finish) return;
  ended_ = true;
  store_->end_turn(*this, std::move(output_));
}

}  // namespace heddle::server
