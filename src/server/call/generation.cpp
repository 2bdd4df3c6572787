// SPDX-License-Identifier: Apache-2.0
#include "server/call/generation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <unordered_set>

#include <fmt/format.h>

#include "request/refusal.h"
#include "server/call/request_log.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

// Tokens are collected into one event of a stream only up to this many log probabilities, whatever
// the stream interval: as JSON these are about 200 kB, which the I/O thread writes at once.
constexpr size_t kMaxGatheredLogprobs = 2048;

// Appends a later event of a request to an earlier one that was not sent yet. Cost: O(size of the
// later event).
void append(RequestEvent& earlier, RequestEvent&& later) {
  earlier.tokens.insert(earlier.tokens.end(), later.tokens.begin(), later.tokens.end());
  const auto text_before = static_cast<uint32_t>(earlier.text.size());
  for (const uint32_t end : later.text_ends) earlier.text_ends.push_back(text_before + end);
  earlier.text += later.text;
  std::move(later.logprobs.begin(), later.logprobs.end(), std::back_inserter(earlier.logprobs));
  // Only a request's first event has log probabilities of the prompt.
  if (!earlier.prompt_logprobs.empty()) later.prompt_logprobs.swap(earlier.prompt_logprobs);
  later.tokens.swap(earlier.tokens);
  later.text.swap(earlier.text);
  later.text_ends.swap(earlier.text_ends);
  later.logprobs.swap(earlier.logprobs);
  earlier = std::move(later);
}

bool is_large(const RequestEvent& event) {
  const auto count = [](const std::vector<TokenLogprob>& logprobs) {
    if (logprobs.empty()) return size_t{0};
    return logprobs.size() * (1 + logprobs[0].top.size() + logprobs[0].listed.size());
  };
  return count(event.logprobs) + count(event.prompt_logprobs) >= kMaxGatheredLogprobs;
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

}  // namespace

int retry_after_seconds(const EngineStats& stats) {
  if (stats.prefill_tokens_per_second <= 0) return 4;
  const double seconds =
      static_cast<double>(stats.waiting_tokens) / stats.prefill_tokens_per_second;
  return static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 60.0));
}

void ApiAdapter::error(const ApiError& failure, std::string& out) {
  out += error_event(failure);
  out += kSseDone;
}

void Generation::start(GenerationHost& host, std::shared_ptr<Exchange> exchange, PreparedCall call,
                       const EarlyAborts::Call& arrived) {
  if (exchange->gone()) return LoggedCall::end(std::move(call.logged), host.threads);
  const auto names_call = [&call](const RequestName& name) { return name.id == call.id; };
  if (std::none_of(call.names.begin(), call.names.end(), names_call)) {
    call.names.push_back({call.id, 0, call.requests.size()});
  }
  if (call.id_is_callers) {
    const std::string holder = holder_of(exchange->request().key);
    const auto taken = std::find_if(
        call.names.begin(), call.names.end(),
        [&host, &holder](const RequestName& name) { return is_live(host, name.id, holder); });
    if (taken != call.names.end()) {
      LoggedCall::end(std::move(call.logged), host.threads,
                      to_string(StatusCode::kInvalidArgument));
      exchange->respond(error_response(
          invalid_value(
              "rid", fmt::format("`rid` \"{}\" belongs to a request that still runs.", taken->id)),
          exchange->request()));
      return;
    }
  }
  std::make_shared<Generation>(host, std::move(exchange), std::move(call))->submit_all(arrived);
}

Generation::Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange, PreparedCall call)
    : host_(host),
      exchange_(std::move(exchange)),
      call_(std::move(call)),
      pending_(call_.requests.size()),
      finished_(call_.requests.size(), false),
      aborted_(call_.requests.size(), false),
      num_unfinished_(call_.requests.size()),
      key_(exchange_->request().key),
      engine_name_(call_.id) {
  for (const Request& request : call_.requests) {
    charges_prompt_.push_back(request.choice_index == 0);
  }
  // The new id contains '#', which clients' ids cannot, so it never equals that of another call.
  if (host_.live.contains(call_.id)) {
    engine_name_ = fmt::format("{}#{}", call_.id, ++host_.num_renamed);
  }
}

std::string Generation::engine_id(size_t choice) const {
  return finished_.size() == 1 ? engine_name_ : fmt::format("{}#choice{}", engine_name_, choice);
}

// Marks the requests that were aborted before the call was parsed. Returns true if all were.
bool Generation::aborted_early(const EarlyAborts::Call& arrived) {
  for (const RequestName& name : call_.names) {
    if (!host_.early_aborts.aborted(name.id, arrived)) continue;
    for (size_t i = name.begin; i < name.end; ++i) aborted_[i] = true;
  }
  return std::ranges::find(aborted_, false) == aborted_.end();
}

void Generation::submit_all(const EarlyAborts::Call& arrived) {
  const std::shared_ptr<Generation> self = shared_from_this();
  const bool unwanted = aborted_early(arrived);
  for (const RequestName& name : call_.names) {
    if (!unwanted) host_.live.insert({name.id, {self, name.begin, name.end}});
  }
  exchange_->rename(call_.id);
  if (call_.stream) {
    exchange_->writes_all_there_is = finished_.size() == 1;
    exchange_->open_stream(call_.stream_format);
  }
  exchange_->on_gone = [weak = weak_from_this()] {
    if (const auto generation = weak.lock()) {
      generation->answered_ = true;
      generation->waiting_.clear();
      generation->cancel_rest();
    }
  };
  if (unwanted) {
    for (size_t i = 0; i < call_.requests.size(); ++i) {
      RequestEvent event;
      event.finish = Finish{.reason = FinishReason::kAbort};
      event.num_weight_updates = call_.num_weight_updates;
      event.prompt_tokens = static_cast<int64_t>(call_.requests[i].prompt.size());
      host_.inbox->push(self, i, std::move(event));
    }
    return;
  }
  const std::chrono::duration<double> waited =
      std::chrono::steady_clock::now() - exchange_->request().arrived_at;
  for (size_t i = 0; i < call_.requests.size(); ++i) {
    call_.requests[i].id = engine_id(i);
    call_.requests[i].waited_seconds = waited.count();
    if (key_ != nullptr) call_.requests[i].tenant_terms = key_->terms;
  }
  const Status status = host_.engine->submit_all(
      std::exchange(call_.requests, {}), [self](size_t choice, RequestEvent&& event) {
        self->host_.inbox->push(self, choice, std::move(event));
      });
  if (!status.ok()) {  // the engine refused the requests, so no event will arrive
    finished_.assign(finished_.size(), true);
    forget_ids();
    LoggedCall::end(std::move(call_.logged), host_.threads, to_string(status.code()));
    fail(status);
    return;
  }
  for (size_t i = 0; i < aborted_.size(); ++i) {
    if (aborted_[i]) cancel(i);
  }
}

void Generation::on_event(size_t choice, RequestEvent&& event) {
  const bool last = event.finish.has_value();
  if (call_.logged != nullptr) call_.logged->add(choice, event);
  if (last) {
    finished_[choice] = true;
    if (key_ != nullptr) {
      host_.on_tokens(
          *key_, event.completion_tokens + (charges_prompt_[choice] ? event.prompt_tokens : 0));
    }
    speed_.add(event, charges_prompt_[choice]);
    if (--num_unfinished_ == 0) {
      if (exchange_ != nullptr) exchange_->note_speed(speed_.to_string());
      forget_ids();
      LoggedCall::end(std::move(call_.logged), host_.threads);
    }
  }
  if (answered_ || waiting_error_) return;
  if (last && event.finish->reason == FinishReason::kError) {
    fail(event.finish->error);
    return;
  }
  // A request whose time limit passed keeps its answer. An abort that no client requested comes
  // from the shutdown.
  if (last && event.finish->reason == FinishReason::kAbort && event.finish->error.ok() &&
      host_.draining && !aborted_[choice]) {
    fail(cut_off_error());
    return;
  }
  if (event.num_weight_updates != call_.num_weight_updates) {
    call_.num_weight_updates = event.num_weight_updates;
    call_.adapter->set_weight_version(host_.weight_version_after(event.num_weight_updates));
  }
  if (call_.stream && call_.stream_interval > 1) {
    RequestEvent& gathered = pending_[choice];
    append(gathered, std::move(event));
    if (!last && std::ssize(gathered.tokens) < call_.stream_interval && !is_large(gathered)) return;
    deliver(choice, std::exchange(pending_[choice], {}));
  } else {
    deliver(choice, std::move(event));
  }
}

void Generation::deliver(size_t choice, RequestEvent&& event) {
  if (call_.stream && (!rest_.done() || !waiting_.empty() || exchange_->backed_up())) {
    // The engine no longer refers to a finished request; this reference keeps the generation alive
    // until its client has read everything.
    exchange_->on_drained = [self = shared_from_this()] { self->write_waiting(); };
    waiting_.push_back({choice, std::move(event)});
  } else {
    write_event(choice, event);
  }
}

void Generation::write_waiting() {
  if (!answered_ && !rest_.done()) {
    std::string piece;
    static_cast<void>(rest_.next(piece, kBodyPieceBytes));
    write_stream(std::move(piece));
  }
  while (!answered_ && rest_.done() && !waiting_.empty() && !exchange_->backed_up()) {
    const WaitingEvent next = std::move(waiting_.front());
    waiting_.pop_front();
    write_event(next.choice, next.event);
  }
  if (answered_ || !rest_.done() || !waiting_.empty()) return;
  exchange_->on_drained = nullptr;
  if (waiting_error_) {
    write_error(*waiting_error_);
    complete();
  }
}

void Generation::write_event(size_t choice, const RequestEvent& event) {
  std::string out;
  call_.adapter->event(choice, event, out);
  if (call_.stream) {
    rest_ = call_.adapter->rest();
    write_stream(std::move(out));
    return;
  }
  if (!is_at_end()) return;
  answered_ = true;
  const std::shared_ptr<Exchange> exchange = exchange_;
  complete();
  send_json(host_.threads, exchange,
            {{"x-queue-ms", milliseconds(event.queue_seconds)},
             {"x-ttft-ms", milliseconds(event.first_token_seconds)},
             {"x-cached-tokens", std::to_string(event.cached_tokens)}},
            {.body = call_.adapter->body(), .shown = call_.adapter});
}

// Whether the last event is written, or will be with the current message.
bool Generation::is_at_end() const {
  return num_unfinished_ == 0 && waiting_.empty() && !waiting_error_;
}

// Writes `bytes` and, after the last message, the end of the stream. The remainder of a long
// message is written as fast as the client reads, one piece per turn of the I/O thread.
void Generation::write_stream(std::string bytes) {
  exchange_->inside_message = !rest_.done();
  if (rest_.done() && is_at_end()) {
    answered_ = true;
    const std::shared_ptr<Exchange> exchange = exchange_;
    complete();
    call_.adapter->end(bytes);
    exchange->writes_all_there_is = false;  // the end of the stream follows in the same turn
    exchange->write(std::move(bytes));
    exchange->finish();
    return;
  }
  exchange_->write(std::move(bytes));
  if (rest_.done()) return;
  const auto go_on = [self = shared_from_this()] { self->write_waiting(); };
  if (exchange_->backed_up()) {
    exchange_->on_drained = go_on;
  } else {
    host_.threads.post(go_on);
  }
}

// Fails with an error that names the field at fault as the call's API does.
void Generation::fail(const Status& status) {
  ApiError error = error_from_status(status, call_.id);
  const bool is_overload = status.code() == StatusCode::kResourceExhausted ||
                           status.code() == StatusCode::kDeadlineExceeded;
  if (is_overload) error.retry_after_seconds = retry_after_seconds(host_.engine->stats());
  if (error.param == request::kAnswersField) error.param = call_.answers_field;
  fail(error);
}

void Generation::fail(const ApiError& error) {
  if (!rest_.done() || !waiting_.empty()) {
    waiting_error_ = error;
  } else if (exchange_->committed()) {
    write_error(error);
  } else {
    answered_ = true;
    exchange_->respond(error_response(error, exchange_->request()));
  }
  cancel_rest();
  if (!answered_) return;
  complete();
  call_.adapter.reset();  // releases the id that the adapter has reserved, so that the client can
                          // use it again
}

void Generation::write_error(const ApiError& error) {
  answered_ = true;
  std::string out;
  call_.adapter->error(error, out);
  exchange_->writes_all_there_is = false;  // the end of the stream follows in the same turn
  exchange_->write(std::move(out));
  exchange_->finish();
}

void Generation::cancel_rest() {
  for (size_t i = 0; i < finished_.size(); ++i) {
    cancel(i);
  }
}

void Generation::cancel(size_t choice) {
  if (!finished_[choice]) host_.engine->cancel(engine_id(choice));
}

void Generation::abort(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (!finished_[i]) aborted_[i] = true;
    cancel(i);
  }
}

void Generation::forget_ids() {
  for (const RequestName& name : call_.names) {
    const auto [begin, end] = host_.live.equal_range(name.id);
    for (auto live = begin; live != end;) {
      live = live->second.generation.lock().get() == this ? host_.live.erase(live) : ++live;
    }
  }
}

// Whether the holder has a running call with this id. Calls of other holders do not count, because
// an error about them would reveal their ids.
bool Generation::is_live(const GenerationHost& host, const std::string& id,
                         const std::string& holder) {
  const auto [begin, end] = host.live.equal_range(id);
  return std::any_of(begin, end, [&holder](const auto& live) {
    const auto generation = live.second.generation.lock();
    return generation != nullptr && holder_of(generation->key_) == holder;
  });
}

bool Generation::abort(GenerationHost& host, const std::string& id,
                       const std::optional<std::string>& holder) {
  bool ended = false;
  const auto [begin, end] = host.live.equal_range(id);
  for (auto live = begin; live != end; ++live) {
    const auto generation = live->second.generation.lock();
    if (generation == nullptr || (holder && holder_of(generation->key_) != *holder)) continue;
    generation->abort(live->second.begin, live->second.end);
    ended = true;
  }
  return host.early_aborts.abort(id, holder) || ended;
}

void Generation::abort_all(GenerationHost& host) {
  // A set, because a generation has several ids.
  std::unordered_set<std::shared_ptr<Generation>> generations;
  for (const auto& [id, live] : host.live) generations.insert(live.generation.lock());
  for (const auto& generation : generations) {
    if (generation != nullptr) generation->abort(0, generation->finished_.size());
  }
  host.early_aborts.abort_all();
}

void Generation::complete() {
  if (exchange_) {
    exchange_->on_gone = nullptr;
    exchange_->on_drained = nullptr;
  }
  exchange_.reset();
}

}  // namespace heddle::server
