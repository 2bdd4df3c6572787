// SPDX-License-Identifier: Apache-2.0
#include "server/admin/profiler.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/field_reader.h"
#include "server/http/caller.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanRow = 1;
constexpr int kStepRow = 2;
constexpr std::string_view kTraceEnding = ".trace.json";
constexpr size_t kMaxPartBytes = 255;    // limit for the name of a file or a folder
constexpr size_t kMaxBelowBytes = 1024;  // limit for all folders in `output_dir` together
constexpr int kMaxNumber = 1000;         // highest number appended to a generated file name

std::string system_error_text() { return std::generic_category().message(errno); }

bool is_control_character(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Owns the descriptor of an open file or folder and closes it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}

  ~Descriptor() {
    if (is_open()) ::close(number_);
  }

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  [[nodiscard]] bool is_open() const { return number_ >= 0; }

  [[nodiscard]] int get() const { return number_; }

  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

HttpResponse text_answer(std::string text) {
  return {.content_type = "text/plain; charset=utf-8", .headers = {}, .body = std::move(text)};
}

// Reads a field that becomes part of a file's name and must not contain folders.
std::string name_part(FieldReader& fields, const Field& name, std::string otherwise) {
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
  const auto num_steps = fields.integer(Body::kProfile["num_steps"]);
  const std::string prefix = name_part(fields, Body::kProfile["profile_prefix"], "");
  const std::string id = name_part(fields, Body::kProfile["profile_id"], std::to_string(unix_time));
  const std::filesystem::path wanted = fields.string_or_preset(Body::kProfile["output_dir"]);
  // Normalised so that a "/" at the end does not count as a part of the path.
  const std::filesystem::path base = (folder / ".").lexically_normal().parent_path();
  const std::filesystem::path target = (base / wanted).lexically_normal();
  if (std::ranges::mismatch(base, target).in1 != base.end()) {
    fields.fail(
        invalid_value("output_dir", fmt::format("`output_dir` is {}; this server writes "
                                                "profiles to {} and below (--profile-path).",
                                                printable(wanted.string(), 200), folder.string())));
  }
  const std::filesystem::path below = target.lexically_relative(base);
  const auto is_long = [](const std::filesystem::path& part) {
    return part.native().size() > kMaxPartBytes;
  };
  if (below.native().size() > kMaxBelowBytes || std::ranges::any_of(below, is_long) ||
      std::ranges::any_of(below.native(), is_control_character)) {
    fields.fail(invalid_value(
        "output_dir", fmt::format("`output_dir` is {}; it may have {} bytes, {} for each folder, "
                                  "and no control characters.",
                                  printable(below.native(), 200), kMaxBelowBytes, kMaxPartBytes)));
  }
  const std::string name = fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "-", id);
  // Leaves space for a number and a hyphen.
  if (name.size() + kTraceEnding.size() + 6 > kMaxPartBytes) {
    fields.fail(invalid_value(
        "profile_prefix",
        fmt::format("`profile_prefix` and `profile_id` have {} characters "
                    "together; they may have {}.",
                    prefix.size() + id.size(), kMaxPartBytes - kTraceEnding.size() - 7)));
  }
  if (fields.error()) return *fields.error();
  return ProfileOrder{.below = below,
                      .name = name,
                      .has_id = object.contains("profile_id"),
                      .num_steps = num_steps.value_or(kMaxRecordedSteps)};
}

Result<std::unique_ptr<ProfileFile>> ProfileFile::create(const std::filesystem::path& folder,
                                                         const ProfileOrder& order) {
  constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const auto cannot = [](const std::filesystem::path& path, std::string_view why) {
    return invalid_argument(
        fmt::format("a profile cannot be written to {}: {}", printable(path.native(), 300), why));
  };
  std::filesystem::path path = folder;
  // This folder, which the operator chose, may be a symbolic link.
  Descriptor below(::open(folder.c_str(), kFolder));
  if (!below.is_open()) return cannot(path, system_error_text());
  for (const std::filesystem::path& part : order.below) {
    if (part == "." || part.empty()) continue;
    path /= part;
    const bool is_made = ::mkdirat(below.get(), part.c_str(), 0777) == 0 || errno == EEXIST;
    if (!is_made) return cannot(path, system_error_text());
    Descriptor next(::openat(below.get(), part.c_str(), kFolder | O_NOFOLLOW));
    if (!next.is_open()) {
      return cannot(path, errno == ENOTDIR || errno == ELOOP
                              ? "it is a file or a symbolic link, which is not followed"
                              : system_error_text());
    }
    below = std::move(next);
  }
  for (int number = 1; number <= kMaxNumber; ++number) {
    const std::string name = fmt::format(
        "{}{}{}", order.name, number > 1 ? fmt::format("-{}", number) : "", kTraceEnding);
    const int file = ::openat(below.get(), name.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) {
      return std::unique_ptr<ProfileFile>(new ProfileFile(path / name, below.release(), file));
    }
    if (errno != EEXIST) return cannot(path / name, system_error_text());
    if (order.has_id) {
      return cannot(path / name,
                    "it is there already, and is not written over; choose another "
                    "profile_id");
    }
  }
  return cannot(path / order.name, "too many profiles of this second are there");
}

ProfileFile::~ProfileFile() {
  ::close(file_);
  if (!written_) ::unlinkat(folder_, path_.filename().c_str(), 0);
  ::close(folder_);
}

Status ProfileFile::write(std::string_view trace) {
  while (!trace.empty()) {
    const ssize_t count = ::write(file_, trace.data(), trace.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return unavailable(
          fmt::format("{} cannot be written: {}", path_.string(), system_error_text()));
    }
    trace.remove_prefix(static_cast<size_t>(count));
  }
  written_ = true;
  return ok_status();
}

Status make_profile_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return ok_status();
  return invalid_argument(
      fmt::format("profiles cannot be written to {}: {}; name a folder that this user may write to",
                  folder.string(), error.message()));
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
  const ProfileOrder& wanted = std::get<ProfileOrder>(order);
  auto created = ProfileFile::create(folder_, wanted);
  if (!created.ok()) {
    exchange->respond(error_response(
        {.status = 409, .code = "conflict", .message = created.status().message()}, request));
    return;
  }
  const std::shared_ptr<ProfileFile> file = std::move(created).value();
  // The callback runs on the engine's thread, or on this one if stop() is called.
  const Status status =
      engine.record_steps(wanted.num_steps, [this, file](std::vector<StepRecord> steps) mutable {
        threads_.post([this, file = std::move(file), steps = std::move(steps)]() mutable {
          write(std::move(steps), std::move(file), std::exchange(stopping_, nullptr));
        });
      });
  if (!status.ok()) {
    exchange->respond(
        error_response({.status = 409, .code = "conflict", .message = status.message()}, request));
    return;
  }
  exchange->respond(text_answer(fmt::format("Profiling {} steps at most; the trace will be {}.\n",
                                            wanted.num_steps, file->path().string())));
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

void Profiler::write(std::vector<StepRecord> steps, std::shared_ptr<ProfileFile> trace,
                     std::shared_ptr<Exchange> exchange) {
  auto work = [this, exchange, trace = std::move(trace), steps = std::move(steps)]() mutable {
    const std::filesystem::path file = trace->path();
    std::string failure;
    try {
      failure = trace->write(trace_json(steps)).message();
    } catch (const std::exception& out_of_memory) {
      failure = out_of_memory.what();
    }
    log_info(failure.empty()
                 ? fmt::format("A profile of {} steps is in {}", steps.size(), file.string())
                 : fmt::format("A profile is lost: {}", failure));
    // The last reference to an exchange must end on the I/O thread.
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
