// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_exchange.h"

#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"

namespace heddle::engine {

WeightExchange::WeightExchange(Stepper& stepper, Inbox& inbox, bool own_thread,
                               std::function<void()> on_read)
    : stepper_(stepper), inbox_(inbox), reader_(own_thread, std::move(on_read)) {}

void WeightExchange::add(Mail& mail) {
  if (!mail.update) return;
  HEDDLE_CHECK(!call_);
  call_ = std::exchange(mail.update, std::nullopt);
}

void WeightExchange::run() {
  if (!call_) return;
  if (stepper_.failed()) return answer(inbox_.closed());
  if (new_weights_ == nullptr) {  // the new weights have not been read yet
    if (Status closed = inbox_.closed(); !closed.ok()) return answer(std::move(closed));
    if (Status status = start(); !status.ok()) return answer(std::move(status));
    if (auto read = reader_.take()) {
      if (!read->ok()) return answer(read->status());
      new_weights_ = std::move(*read).value();
    }
  }
  if (new_weights_ != nullptr && ready()) use_weights();
  if (stepper_.failed()) answer(inbox_.closed());
}

void WeightExchange::refuse(const Status& status) { answer(status); }

// Starts reading, unless reading is in progress.
Status WeightExchange::start() {
  if (reader_.busy()) return {};
  const WeightUpdate& update = call_->update;
  log_info(fmt::format("reading the weights of {}", update.model_dir.string()));
  return reader_.start(
      [&runner = stepper_.runner(),
       folder = runner::WeightFolder{.model_dir = update.model_dir,
                                     .dummy = update.load_format == LoadFormat::kDummy}](
          const std::atomic<bool>& cancelled) { return runner.read_weights(folder, cancelled); });
}

// Ends the requests that must not see the new weights. Returns whether none of them is left.
bool WeightExchange::ready() {
  if (call_->update.abort_all_requests) {
    stepper_.finish_steps();
    if (stepper_.failed()) return false;
    stepper_.finish_all({.reason = FinishReason::kAbort});
  }
  return stepper_.hold_arrivals();
}

void WeightExchange::use_weights() {
  const WeightUpdate& update = call_->update;
  const int64_t num_paused = stepper_.paused() ? stepper_.num_live() : 0;
  if (!stepper_.use_weights(*new_weights_, update.flush_cache).ok()) return;
  new_weights_.reset();
  log_info(fmt::format("the weights are those of {} from now on", update.model_dir.string()));
  if (update.pause_after && !stepper_.paused()) stepper_.set_paused(PauseMode::kInPlace);
  answer(WeightsUpdated{.num_paused_requests = num_paused,
                        .num_weight_updates = stepper_.num_weight_updates()});
}

// Answers an update, whether it succeeded or failed.
void WeightExchange::answer(Result<WeightsUpdated> result) {
  if (!call_) return;
  reader_.cancel();
  new_weights_.reset();
  stepper_.admit_arrivals();
  const UpdateCall call = std::move(*call_);
  call_.reset();
  inbox_.on_update_answered();
  if (!result.ok() && result.status().code() != StatusCode::kUnavailable) {
    result = result.status().with_context(fmt::format(
        "the weights in use stay; those of {} cannot be used", call.update.model_dir.string()));
    log_warning(result.status().message());
  }
  call.on_done(std::move(result));
}

}  // namespace heddle::engine
