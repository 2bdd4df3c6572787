// SPDX-License-Identifier: Apache-2.0
#include "server/profiler.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "core/log.h"
#include "server/call_fields.h"
#include "server/caller.h"
#include "server/field_reader.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanRow = 1;
constexpr int kStepRow = 2;

HttpResponse text_answer(std::string text) {
  return {.content_type = "text/plain; charset=utf-8", .headers = {}, .body = std::move(text)};
}

// Part of a file's name: no folders in it.
std::string name_part(FieldReader& fields, std::string_view name, std::string otherwise) {
  std::string text = fields.string(name).value_or(std::move(otherwise));
  if (!text.empty() && !is_request_id(text)) {
    fields.fail(invalid_value(name, fmt::format("`{}` is \"{}\"; it may have 128 letters, digits "
                                                "and ._:- at most.",
                                                name, printable(text, 128))));
  }
  return text;
}

void append_event(std::string_view name, int row, double begin_us, double length_us,
                  std::string_view arguments, std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.1f},\"dur\":"
                 "{:.1f},\"args\":{{{}}}}}",
                 name, row, begin_us, length_us, arguments);
}

std::string_view kind_of(const StepRecord& step) {
  if (step.prefill_tokens > 0) return step.decode_sequences > 0 ? "mixed" : "prefill";
  return "decode";
}

}  // namespace

std::variant<ProfileOrder, ApiError> read_profile_order(std::string_view body,
                                                        const std::filesystem::path& folder,
                                                        int64_t unix_time) {
  Json object = Json::object();
  if (!body.empty()) {
    if (auto error = parse_json_object(body, object)) return *error;
  }
  FieldReader fields(object);
  refuse_fields(fields, {"start_step", "profile_by_stage"});
  const auto num_steps = fields.integer("num_steps", 1, kMaxRecordedSteps);
  const std::string prefix = name_part(fields, "profile_prefix", "");
  const std::string id = name_part(fields, "profile_id", std::to_string(unix_time));
  const std::filesystem::path wanted = fields.string("output_dir").value_or("");
  // A "/" at the end would be a part of its own.
  const std::filesystem::path base = (folder / ".").lexically_normal().parent_path();
  const std::filesystem::path target = (base / wanted).lexically_normal();
  if (std::ranges::mismatch(base, target).in1 != base.end()) {
    fields.fail(
        invalid_value("output_dir", fmt::format("`output_dir` is {}; this server writes "
                                                "profiles to {} and below (--profile-path).",
                                                printable(wanted.string(), 200), folder.string())));
  }
  if (fields.error()) return *fields.error();
  return ProfileOrder{
      .file = target / fmt::format("{}{}{}.trace.json", prefix, prefix.empty() ? "" : "-", id),
      .num_steps = num_steps.value_or(kMaxRecordedSteps)};
}

Status make_profile_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return ok_status();
  return invalid_argument(
      fmt::format("profiles cannot be written to {}: {}", folder.string(), error.message()));
}

std::string trace_json(const std::vector<StepRecord>& steps) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (const auto& [row, name] : {std::pair{kPlanRow, "plan"}, {kStepRow, "step"}}) {
    fmt::format_to(std::back_inserter(out),
                   "{}\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},\"args\":"
                   "{{\"name\":\"{}\"}}}}",
                   row == kPlanRow ? "" : ",", row, name);
  }
  const double zero =
      steps.empty() ? 0 : steps.front().launched_seconds - steps.front().plan_seconds;
  for (const StepRecord& step : steps) {
    const auto us = [zero](double seconds) { return (seconds - zero) * 1e6; };
    append_event("plan", kPlanRow, us(step.launched_seconds - step.plan_seconds),
                 step.plan_seconds * 1e6, fmt::format("\"step\":{}", step.number), out);
    append_event(kind_of(step), kStepRow, us(step.end_seconds - step.seconds), step.seconds * 1e6,
                 fmt::format("\"step\":{},\"prefill_tokens\":{},\"cached_tokens\":{},"
                             "\"new_sequences\":{},\"decode_sequences\":{}",
                             step.number, step.prefill_tokens, step.cached_tokens,
                             step.new_sequences, step.decode_sequences),
                 out);
    fmt::format_to(std::back_inserter(out),
                   ",\n{{\"name\":\"sequences\",\"ph\":\"C\",\"pid\":1,\"ts\":{:.1f},\"args\":"
                   "{{\"running\":{},\"waiting\":{}}}}}",
                   us(step.end_seconds), step.num_running, step.num_waiting);
  }
  return out + "\n]}\n";
}

void Profiler::start(Engine& engine, const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  auto order = read_profile_order(request.body, folder_, unix_time_());
  if (const auto* const error = std::get_if<ApiError>(&order)) {
    exchange->respond(error_response(*error, request));
    return;
  }
  const auto& [file, num_steps] = std::get<ProfileOrder>(order);
  // On the engine's thread, or on this one from stop().
  const Status status =
      engine.record_steps(num_steps, [this](std::vector<StepRecord> steps) mutable {
        threads_.post([this, steps = std::move(steps)]() mutable {
          write(std::move(steps), std::exchange(stopping_, nullptr));
        });
      });
  if (!status.ok()) {
    exchange->respond(
        error_response({.status = 409, .code = "conflict", .message = status.message()}, request));
    return;
  }
  file_ = file;
  exchange->respond(text_answer(fmt::format("Profiling {} steps at most; the trace will be {}.\n",
                                            num_steps, file_.string())));
}

void Profiler::stop(Engine& engine, const std::shared_ptr<Exchange>& exchange) {
  if (stopping_ == nullptr) stopping_ = exchange;
  const Status status = stopping_ == exchange ? engine.stop_recording()
                                              : invalid_argument("the profile is ending already");
  if (status.ok()) return;
  if (stopping_ == exchange) stopping_ = nullptr;
  exchange->respond(error_response({.status = 409, .code = "conflict", .message = status.message()},
                                   exchange->request()));
}

void Profiler::write(std::vector<StepRecord> steps, std::shared_ptr<Exchange> exchange) {
  auto work = [this, exchange, file = file_, steps = std::move(steps)]() mutable {
    std::string failure;
    try {
      std::error_code error;
      std::filesystem::create_directories(file.parent_path(), error);
      std::ofstream out(file, std::ios::binary);
      out << trace_json(steps);
      out.close();
      if (!out) failure = fmt::format("{} cannot be written", file.string());
    } catch (const std::exception& out_of_memory) {
      failure = out_of_memory.what();
    }
    log_info(failure.empty()
                 ? fmt::format("A profile of {} steps is in {}", steps.size(), file.string())
                 : fmt::format("A profile is lost: {}", failure));
    // The last reference ends on the I/O thread, where exchanges live.
    threads_.post([exchange = std::move(exchange), file, failure, count = steps.size()] {
      if (exchange == nullptr) return;
      exchange->respond(
          failure.empty()
              ? text_answer(fmt::format("A trace of {} steps is in {}.\n", count, file.string()))
              : error_response({.status = 500, .code = "internal_error", .message = failure},
                               exchange->request()));
    });
  };
  if (threads_.run_on_worker(std::move(work)) || exchange == nullptr) return;
  exchange->respond(error_response({.status = 503,
                                    .code = "queue_full",
                                    .message = "The server is too busy to write the profile.",
                                    .retry_after_seconds = 4},
                                   exchange->request()));
}

}  // namespace heddle::server
