// SPDX-License-Identifier: Apache-2.0
#include "server/call/request_log.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iterator>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/choice_names.h"
#include "core/log.h"
#include "server/call/answer_log.h"
#include "server/call/text_codec.h"
#include "server/http/body_sender.h"
#include "server/http/json_text.h"
#include "tokenizer/utf8.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kParametersLevel = 1;
constexpr int32_t kTextLevel = 2;

// Most characters of a logged text below the highest level.
constexpr size_t kLoggedCharacters = 2048;
// Most bytes that this many characters can have.
constexpr size_t kLoggedBytes = 4 * kLoggedCharacters;
constexpr size_t kLoggedEntries = 16;  // limit for entries of a list below the highest level

// Longest wait to write a line; none after a line that failed.
constexpr std::chrono::milliseconds kPatience(1000);

constexpr ChoiceNames<RequestLogFormat, 2> kFormats = {
    {{"text", RequestLogFormat::kText}, {"json", RequestLogFormat::kJson}}};

// The limits for texts and lists at a level.
struct LineLimits {
  explicit LineLimits(int32_t level) {
    if (level < kMaxRequestLogLevel) return;
    characters = bytes = entries = std::numeric_limits<size_t>::max();
  }

  size_t characters = kLoggedCharacters;
  size_t bytes = kLoggedBytes;
  size_t entries = kLoggedEntries;
};

std::string_view first_characters(std::string_view text, size_t count) {
  size_t end = 0;
  for (; count > 0 && end < text.size(); --count) end += tokenizer::utf8_length(text[end]);
  return text.substr(0, end);
}

// Rounds to six decimals, because 0.7f is 0.699999988 as a double.
double six_decimals(double value) { return std::round(value * 1e6) / 1e6; }

// A list of the values of `shown` for each entry, up to the limit.
template <typename List, typename Shown>
Json limited_list(const List& list, const LineLimits& limits, Shown shown) {
  Json result = Json::array();
  for (const auto& entry : list) {
    if (result.size() == limits.entries) break;
    result.push_back(shown(entry));
  }
  return result;
}

Json parameters_json(const Request& request, const LineLimits& limits) {
  const SamplingParams& sampling = request.sampling;
  const StopConditions& stop = request.stop;
  const auto shown_text = [&limits](const std::string& text) {
    return first_characters(text, limits.characters);
  };
  Json json = {{"max_new_tokens", stop.max_new_tokens},
               {"min_new_tokens", stop.min_new_tokens},
               {"temperature", six_decimals(sampling.temperature)},
               {"top_p", six_decimals(sampling.top_p)},
               {"top_k", sampling.top_k},
               {"min_p", six_decimals(sampling.min_p)},
               {"frequency_penalty", six_decimals(sampling.frequency_penalty)},
               {"presence_penalty", six_decimals(sampling.presence_penalty)},
               {"repetition_penalty", six_decimals(sampling.repetition_penalty)}};
  if (sampling.seed) json["seed"] = *sampling.seed;
  if (!sampling.logit_bias.empty()) {
    json["logit_bias"] = limited_list(sampling.logit_bias, limits, [](const auto& entry) {
      return Json::array({entry.first, six_decimals(entry.second)});
    });
  }
  if (!stop.texts.empty()) json["stop"] = limited_list(stop.texts, limits, shown_text);
  if (!stop.patterns.empty()) {
    json["stop_regex"] = limited_list(
        stop.patterns, limits, [&](const auto& pattern) { return shown_text(pattern->text()); });
  }
  if (!stop.token_ids.empty()) {
    json["stop_token_ids"] = limited_list(stop.token_ids, limits, [](TokenId id) { return id; });
  }
  json["ignore_eos"] = stop.ignore_eos;
  json["skip_special_tokens"] = request.skip_special_tokens;
  if (request.return_logprobs) json["top_logprobs"] = request.top_logprobs;
  json["constrained"] = request.constraint != nullptr;
  return json;
}

// The beginning of a prompt as text. A token has at least one byte, so that decoding as many tokens
// as bytes are shown is enough.
std::string prompt_text(const Request& request, const TextCodec& codec, const LineLimits& limits) {
  const std::span<const TokenId> prompt = request.prompt;
  const std::string text = codec.decode(prompt.first(std::min(prompt.size(), limits.bytes)),
                                        /*skip_special_tokens=*/false);
  return std::string(first_characters(text, limits.characters));
}

std::tm utc(int64_t unix_time) {
  const std::time_t seconds = unix_time;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return parts;
}

// Whether a character can delete, move or reorder a line in a viewer: DEL, the second range of
// control characters, line separators, marks of text direction. (JSON escapes the controls below a
// blank.)
bool steers_viewers(char32_t c) {
  return c == 0x7f || (c >= 0x80 && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Escapes such characters. `json` is valid UTF-8 and has them only inside strings.
std::string with_escapes(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 1);
  for (size_t at = 0; at < json.size();) {
    if (static_cast<unsigned char>(json[at]) < 0x7f) {
      out += json[at++];
      continue;
    }
    const tokenizer::Utf8Unit unit = tokenizer::decode_utf8(json.substr(at));
    if (steers_viewers(unit.code_point)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(unit.code_point));
    } else {
      out.append(json.substr(at, unit.length));
    }
    at += unit.length;
  }
  return out;
}

std::string line_of(const Json& fields, std::string_view event, RequestLogFormat format,
                    const std::tm& now) {
  const std::string time =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", now.tm_year + 1900, now.tm_mon + 1,
                  now.tm_mday, now.tm_hour, now.tm_min, now.tm_sec);
  std::string line;
  if (format == RequestLogFormat::kJson) {
    Json object = {{"event", event}, {"time", time}};
    object.update(fields);
    line = dump_json(object);
  } else {
    line = fmt::format("{} {}", time, event);
    for (const auto& [name, value] : fields.items()) {
      line += fmt::format(" {}={}", name, dump_json(value));
    }
  }
  line = with_escapes(line);
  line += '\n';
  return line;
}

// Writes a line and removes the written bytes from `line`: all of them, unless there is an error.
// If poll() reports a pipe as writable, it accepts PIPE_BUF bytes at once.
std::error_code write_line(int file, std::string_view& line, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!line.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count == 0) return std::make_error_code(std::errc::timed_out);
    const ssize_t written =
        count < 0 ? -1 : ::write(file, line.data(), std::min<size_t>(line.size(), PIPE_BUF));
    if (written >= 0) {
      line.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      return {errno, std::generic_category()};
    }
  }
  return {};
}

// Appends a line to a file. The file is opened for each line, so that it is created again if an
// operator moves it away. Only this user can read it, because prompts are private.
std::error_code append_to_file(const std::string& path, std::string_view& line,
                               std::chrono::milliseconds patience) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                          S_IRUSR | S_IWUSR);
  if (file < 0) return {errno, std::generic_category()};
  const std::error_code error = write_line(file, line, patience);
  ::close(file);
  return error;
}

}  // namespace

std::string_view to_string(RequestLogFormat format) { return name_of(kFormats, format); }

Result<RequestLogFormat> parse_request_log_format(std::string_view text) {
  return choice_of(kFormats, text, "the format of the request log", "text or json");
}

Result<std::unique_ptr<RequestLog>> RequestLog::open(RequestLogOptions options,
                                                     std::function<int64_t()> unix_time) {
  if (!options.folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (!error && ::access(options.folder.c_str(), W_OK | X_OK) != 0) {
      error = std::error_code(errno, std::generic_category());
    }
    if (error) {
      return invalid_argument(
          fmt::format("requests cannot be logged to {}: {}; name a folder that this user may write "
                      "to, or stdout",
                      options.folder, error.message()));
    }
  }
  return std::unique_ptr<RequestLog>(new RequestLog(std::move(options), std::move(unix_time)));
}

RequestLog::RequestLog(RequestLogOptions options, std::function<int64_t()> unix_time)
    : folder_(std::move(options.folder)),
      unix_time_(std::move(unix_time)),
      settings_(options.settings) {}

std::shared_ptr<LoggedCall> RequestLog::received(const ReceivedCall& call) {
  if (!settings().on) return nullptr;
  try {
    return write_received(call);
  } catch (const std::exception& failure) {  // mostly out of memory
    log_warning(fmt::format("The request log has no lines of {}: {}", call.id, failure.what()));
    return nullptr;
  }
}

std::shared_ptr<LoggedCall> RequestLog::write_received(const ReceivedCall& call) {
  const RequestLogSettings now = settings();
  auto logged = std::make_shared<LoggedCall>(*this, call, call.no_logs ? 0 : now.level);
  const int32_t level = logged->level_;
  const LineLimits limits(level);
  Json fields = {{"id", call.id},
                 {"path", call.path},
                 {"model", call.model},
                 {"tenant", logged->tenant_},
                 {"num_prompts", logged->num_prompts_},
                 {"num_answers", call.requests.size()},
                 {"prompt_tokens", logged->prompt_tokens_}};
  if (call.no_logs) fields["no_logs"] = true;
  std::vector<const Request*> prompts;  // the prompts that the line shows
  for (const Request& request : call.requests) {
    if (prompts.size() == limits.entries) break;
    if (request.choice_index == 0) prompts.push_back(&request);
  }
  if (level >= kParametersLevel) {
    fields["sampling_params"] = limited_list(
        prompts, limits, [&](const Request* request) { return parameters_json(*request, limits); });
  }
  if (level >= kTextLevel) {
    fields["input"] = limited_list(prompts, limits, [&](const Request* request) {
      return prompt_text(*request, call.codec, limits);
    });
  }
  write(fields, "received", now.format);
  return logged;
}

void RequestLog::write_end(const LoggedCall& call) {
  const RequestLogSettings now = settings();
  if (!now.on) return;
  const int32_t level = std::min(call.level_, now.level);
  const LineLimits limits(level);
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  Json reasons = Json::object();  // number of answers per finish reason
  const FinishReason unfinished = call.error_.empty() ? FinishReason::kAbort : FinishReason::kError;
  for (const LoggedCall::Answer& answer : call.answers_) {
    completion_tokens += answer.completion_tokens;
    if (answer.counts_prompt) cached_tokens += answer.cached_tokens;
    Json& count = reasons[std::string(finish_name(answer.finish.value_or(unfinished)))];
    count = count.is_null() ? 1 : count.get<int64_t>() + 1;
  }
  Json fields = {{"id", call.id_},
                 {"path", call.path_},
                 {"model", call.model_},
                 {"tenant", call.tenant_},
                 {"finish_reasons", std::move(reasons)},
                 {"prompt_tokens", call.prompt_tokens_},
                 {"completion_tokens", completion_tokens},
                 {"cached_tokens", cached_tokens},
                 {"queue_seconds", six_decimals(call.queue_seconds_)},
                 {"elapsed_seconds", six_decimals(call.elapsed_seconds_)}};
  if (!call.error_.empty()) fields["error"] = call.error_;
  if (call.no_logs_) fields["no_logs"] = true;
  if (level >= kTextLevel) {
    fields["output"] = limited_list(call.answers_, limits, [&](const LoggedCall::Answer& answer) {
      return first_characters(answer.text, limits.characters);
    });
  }
  write(fields, "finished", now.format);
}

void RequestLog::write(const Json& fields, std::string_view event, RequestLogFormat format) {
  const std::tm now = utc(unix_time_());
  std::string line = line_of(fields, event, format, now);
  const std::string path = folder_.empty()
                               ? "standard output"
                               : fmt::format("{}/request-log-{:04}{:02}{:02}.{}", folder_,
                                             now.tm_year + 1900, now.tm_mon + 1, now.tm_mday,
                                             format == RequestLogFormat::kJson ? "jsonl" : "log");
  const MutexLock lock(write_mutex_);
  if (cut_) line.insert(0, "\n");
  std::string_view left = line;
  const auto patience = failing_ ? std::chrono::milliseconds(0) : kPatience;
  const std::error_code error = folder_.empty() ? write_line(STDOUT_FILENO, left, patience)
                                                : append_to_file(path, left, patience);
  if (left.size() < line.size()) cut_ = !left.empty();
  if (!error) {
    failing_ = false;
  } else if (!std::exchange(failing_, true)) {
    log_warning(fmt::format(
        "The request log cannot be written to {}: {}; requests go on, and lines are missing", path,
        error.message()));
  }
}

LoggedCall::LoggedCall(RequestLog& log, const ReceivedCall& call, int32_t level)
    : log_(log),
      level_(level),
      no_logs_(call.no_logs),
      id_(call.id),
      path_(call.path),
      model_(call.model),
      tenant_(call.requests.empty() ? std::string() : call.requests.front().tenant),
      arrived_at_(call.arrived_at),
      answers_(call.requests.size()) {
  for (size_t i = 0; i < answers_.size(); ++i) {
    const Request& request = call.requests[i];
    if (request.choice_index != 0) continue;
    answers_[i].counts_prompt = true;
    ++num_prompts_;
    prompt_tokens_ += std::ssize(request.prompt);
  }
}

void LoggedCall::add(size_t choice, const RequestEvent& event) {
  Answer& answer = answers_[choice];
  const LineLimits limits(level_);
  if (level_ >= kTextLevel && choice < limits.entries && answer.text.size() < limits.bytes) {
    try {
      answer.text.append(event.text, 0, limits.bytes - answer.text.size());
    } catch (const std::bad_alloc&) {  // a request must not fail because of its log
    }
  }
  answer.completion_tokens = event.completion_tokens;
  answer.cached_tokens = event.cached_tokens;
  queue_seconds_ = std::max(queue_seconds_, event.queue_seconds);
  if (!event.finish) return;
  answer.finish = event.finish->reason;
  if (error_.empty() && !event.finish->error.ok()) error_ = to_string(event.finish->error.code());
}

void LoggedCall::end(std::shared_ptr<LoggedCall> call, const BodyThreads& threads,
                     std::string_view error) {
  if (call == nullptr) return;
  if (call->error_.empty()) call->error_ = error;
  call->elapsed_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - call->arrived_at_).count();
  const auto write = [call = std::move(call)] {
    try {
      call->log_.write_end(*call);
    } catch (const std::exception& failure) {  // mostly out of memory
      log_warning(fmt::format("The request log has no end of {}: {}", call->id_, failure.what()));
    }
  };
  if (!threads.run_on_worker(write)) {
    log_warning("The request log has no end of a call: the workers are too busy");
  }
}

}  // namespace heddle::server
