// SPDX-License-Identifier: Apache-2.0
#include "tools/generate_batch.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/answer_log.h"
#include "server/http/json_text.h"
#include "tools/cli/event_queue.h"
#include "tools/cli/output_file.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

// More than an engine runs at once, so that it never waits for more requests.
constexpr size_t kMaxInFlight = 256;

struct Totals {
  int64_t requests = 0;
  int64_t failed = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
};

class BatchRun {
 public:
  BatchRun(const Batch& batch, Engine& engine, const server::TextCodec& codec,
           const ToTokens& to_tokens, std::ostream* file)
      : settings_(batch.settings),
        lines_(batch.lines),
        engine_(engine),
        codec_(codec),
        to_tokens_(to_tokens),
        file_(file),
        progress_(static_cast<int64_t>(lines_.size())) {}

  // Submits requests up to the limit, waits for an event, writes finished results in order, and
  // repeats.
  Result<int> run() {
    interrupts().set_handler([this](int signal, int count) {
      if (count > 1) std::_Exit(128 + signal);
      stopped_ = true;
    });
    size_t next = 0;
    while (num_done_ < lines_.size()) {
      if (stopped_ && !std::exchange(cancelled_, true)) {
        for (const auto& [index, answer] : running_) engine_.cancel(request_id(index));
        num_done_ += lines_.size() - next;
        next = lines_.size();
      }
      if (next < lines_.size() && running_.size() < kMaxInFlight) {
        submit(next++);
        continue;
      }
      if (!running_.empty()) take_event();
    }
    interrupts().set_handler(nullptr);
    progress_.clear();
    HEDDLE_RETURN_IF_ERROR(write_status_);
    if (settings_.json_report) fmt::print("{}\n", report().dump(2));
    if (stopped_) return kExitInterrupted;
    return totals_.failed > 0 ? 1 : 0;
  }

 private:
  struct Answer {
    std::string text;
    std::vector<TokenId> tokens;
  };

  static std::string request_id(size_t index) { return fmt::format("batch-{}", index); }

  void submit(size_t index) {
    const Status status = try_submit(index);
    if (status.ok()) return;
    running_.erase(index);
    finish(index, {{"error", status.message()}}, /*failed=*/true);
  }

  Status try_submit(size_t index) {
    Json line;
    if (const auto error = server::parse_json_object(lines_[index].text, line, "The line")) {
      return invalid_argument(error->message);
    }
    if (line.contains("custom_id")) custom_ids_[index] = line["custom_id"];
    HEDDLE_ASSIGN_OR_RETURN(
        Request request,
        request_of_line(line, settings_.sampling, engine_.model_info(), codec_, to_tokens_));
    request.id = request_id(index);
    request.adapter = settings_.sampling.adapter;
    running_[index];
    return engine_.submit(std::move(request), [this, index](RequestEvent&& event) {
      events_.push(index, std::move(event));
    });
  }

  void take_event() {
    const auto [index, event] = events_.pop();
    Answer& answer = running_[index];
    answer.text += event.text;
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    if (!event.finish) return;
    const Answer done = std::move(answer);
    running_.erase(index);
    totals_.prompt_tokens += event.prompt_tokens;
    totals_.cached_tokens += event.cached_tokens;
    totals_.output_tokens += event.completion_tokens;
    if (event.finish->reason == FinishReason::kError) {
      finish(index, {{"error", event.finish->error.message()}}, /*failed=*/true);
      return;
    }
    finish(index,
           {{"text", done.text},
            {"output_ids", done.tokens},
            {"finish_reason", server::finish_name(event.finish->reason)},
            {"matched_stop", server::matched_stop(*event.finish)},
            {"prompt_tokens", event.prompt_tokens},
            {"completion_tokens", event.completion_tokens},
            {"cached_tokens", event.cached_tokens},
            {"cached_tokens_details", server::cache_details(event.cache)}},
           /*failed=*/false);
  }

  void finish(size_t index, const Json& answer, bool failed) {
    ++num_done_;
    ++totals_.requests;
    totals_.failed += failed ? 1 : 0;
    Json line = {{"index", lines_[index].index}};
    if (auto id = custom_ids_.extract(index)) line["custom_id"] = std::move(id.mapped());
    line.update(answer);
    waiting_[index] = server::dump_json(line) + "\n";
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == num_written_;
         first = waiting_.erase(first)) {
      write(first->second);
      ++num_written_;
    }
    progress_.show(static_cast<int64_t>(num_done_),
                   fmt::format("{:.0f} tokens/s",
                               static_cast<double>(totals_.output_tokens) / elapsed_seconds()));
  }

  void write(const std::string& line) {
    const bool written =
        file_ != nullptr ? static_cast<bool>(file_->write(line.data(), std::ssize(line)).flush())
                         : print_now(line);
    if (!written && write_status_.ok()) {
      write_status_ =
          resource_exhausted(fmt::format("cannot write answer {} to {}", num_written_,
                                         file_ != nullptr ? settings_.output : "standard output"));
      stopped_ = true;
    }
  }

  [[nodiscard]] double elapsed_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_at_).count();
  }

  [[nodiscard]] Json report() const {
    const double seconds = elapsed_seconds();
    return {{"model", engine_.model_info().name},
            {"requests", totals_.requests},
            {"failed", totals_.failed},
            {"prompt_tokens", totals_.prompt_tokens},
            {"cached_tokens", totals_.cached_tokens},
            {"output_tokens", totals_.output_tokens},
            {"seconds", seconds},
            {"output_tokens_per_second", static_cast<double>(totals_.output_tokens) / seconds}};
  }

  const BatchSettings& settings_;
  const std::vector<BatchLine>& lines_;
  Engine& engine_;
  const server::TextCodec& codec_;
  const ToTokens& to_tokens_;
  std::ostream* file_;
  ProgressBar progress_;
  EventQueue events_;
  std::map<size_t, Answer> running_;
  std::map<size_t, Json> custom_ids_;      // custom ids of lines without an answer so far
  std::map<size_t, std::string> waiting_;  // answers that wait for those of earlier lines
  size_t num_done_ = 0;
  size_t num_written_ = 0;
  Totals totals_;
  Status write_status_;
  std::atomic<bool> stopped_{false};
  bool cancelled_ = false;
  std::chrono::steady_clock::time_point started_at_ = std::chrono::steady_clock::now();
};

}  // namespace

Result<Batch> read_batch(const BatchSettings& settings) {
  if (!settings.output.empty()) {
    HEDDLE_RETURN_IF_ERROR(check_output_file(settings.output, ExistingFile::kKeep));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto lines, read_batch_lines(settings.input));
  return Batch{.settings = settings, .lines = std::move(lines)};
}

Result<int> generate_batch(const Batch& batch, Engine& engine, const server::TextCodec& codec,
                           const ToTokens& to_tokens) {
  std::ofstream file;
  const std::string& output = batch.settings.output;
  if (!output.empty()) {
    file.open(output, std::ios::trunc);
    if (!file) return invalid_argument(fmt::format("cannot write to {}", output));
  }
  return BatchRun(batch, engine, codec, to_tokens, output.empty() ? nullptr : &file).run();
}

}  // namespace heddle::tools
