// SPDX-License-Identifier: Apache-2.0
#include "server/http/key_ring.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <ratio>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/http/caller.h"

namespace heddle::server {
namespace {

constexpr size_t kMinSecretBytes = 8;
constexpr size_t kMaxKeyFileBytes = 8 << 20;
constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kSettings =
    "rpm=, tpm=, max_requests=, max_running=, max_queued=, weight=, priority= or models=";
constexpr double kMaxWeight = 1000;

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(separators), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

Result<int64_t> parse_limit(std::string_view name, std::string_view value, int64_t min) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (failure != std::errc() || end != value.data() + value.size() || number < min) {
    return invalid_argument(fmt::format("{}={} must be a whole number{}", name,
                                        printable(value, 40), min > 0 ? " above 0" : ""));
  }
  return number;
}

Result<double> parse_weight(std::string_view value) {
  double weight = 0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), weight);
  const bool is_whole = failure == std::errc() && end == value.data() + value.size();
  if (is_whole && weight >= 1 / kMaxWeight && weight <= kMaxWeight) return weight;
  return invalid_argument(fmt::format("weight={} must be a number from {} to {}",
                                      printable(value, 40), 1 / kMaxWeight, kMaxWeight));
}

Status apply_setting(std::string_view setting, ApiKey& key) {
  const size_t equals = std::min(setting.find('='), setting.size());
  const std::string_view name = setting.substr(0, equals);
  const std::string_view value = setting.substr(std::min(equals + 1, setting.size()));
  if (name == "models") {
    for (const std::string_view model : split(value, ",")) key.models.emplace_back(model);
    if (key.models.empty()) return invalid_argument("models= names no model; leave it out for all");
    return ok_status();
  }
  if (name == "priority") {
    HEDDLE_ASSIGN_OR_RETURN(key.priority,
                            parse_limit(name, value, std::numeric_limits<int64_t>::min()));
    return ok_status();
  }
  if (name == "weight") {
    HEDDLE_ASSIGN_OR_RETURN(key.terms.weight, parse_weight(value));
    return ok_status();
  }
  const bool is_of_queue = name == "max_running" || name == "max_queued";
  if (name != "rpm" && name != "tpm" && name != "max_requests" && !is_of_queue) {
    return invalid_argument(
        fmt::format("\"{}\" is not known; use {}", printable(setting, 40), kSettings));
  }
  HEDDLE_ASSIGN_OR_RETURN(const int64_t limit, parse_limit(name, value, 1));
  if (name == "rpm") key.requests_per_minute = static_cast<double>(limit);
  if (name == "tpm") key.tokens_per_minute = static_cast<double>(limit);
  if (name == "max_requests") key.max_requests = limit;
  const auto most =
      static_cast<int32_t>(std::min<int64_t>(limit, std::numeric_limits<int32_t>::max()));
  if (name == "max_running") key.terms.max_running = most;
  if (name == "max_queued") key.terms.max_queued = most;
  return ok_status();
}

Result<ApiKey> parse_line(const std::vector<std::string_view>& words) {
  if (words[0].size() < kMinSecretBytes) {
    return invalid_argument(
        fmt::format("the key has {} characters; a key that is hard to guess has at least {}",
                    words[0].size(), kMinSecretBytes));
  }
  if (words.size() < 2 || words[1].find('=') != std::string_view::npos) {
    return invalid_argument("the key has no name; write the name of its holder behind it");
  }
  ApiKey key;
  key.secret = std::string(words[0]);
  key.name = std::string(words[1]);
  if (!is_request_id(key.name)) {
    return invalid_argument(
        "the name must be 1 to 128 characters out of letters, digits, '.', '_', ':' and '-'");
  }
  std::set<std::string_view> settings;
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string_view name = words[i].substr(0, words[i].find('='));
    if (!settings.insert(name).second) {
      return invalid_argument(fmt::format("{}= is given twice; give it once", printable(name, 40)));
    }
    HEDDLE_RETURN_IF_ERROR(apply_setting(words[i], key));
  }
  return key;
}

ApiError rate_limit(const ApiKey& key, std::string_view limit, double wait_seconds) {
  return {
      .status = 429,
      .code = "rate_limit_exceeded",
      .message =
          fmt::format("The key of {} has reached its limit of {}. Retry later.", key.name, limit),
      .retry_after_seconds = static_cast<int>(std::clamp(std::ceil(wait_seconds), 1.0, 3600.0))};
}

}  // namespace

bool may_use_model(const ApiKey* key, std::string_view name) {
  return key == nullptr || key->models.empty() ||
         std::ranges::find(key->models, name) != key->models.end();
}

std::string holder_of(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

size_t share_of(size_t total, double share) {
  return std::max<size_t>(static_cast<size_t>(static_cast<double>(total) * share), 1);
}

Result<std::vector<ApiKey>> parse_api_keys(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<ApiKey> keys;
  std::set<std::string, std::less<>> secrets;
  std::set<std::string, std::less<>> names;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = split(text.substr(0, end), kBlanks);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || words[0].starts_with('#')) continue;
    Result<ApiKey> key = parse_line(words);
    if (!key.ok()) return key.status().with_context(fmt::format("line {}", line));
    if (!secrets.insert(key->secret).second) {
      return invalid_argument(fmt::format("line {}: the key stands in an earlier line", line));
    }
    if (!names.insert(key->name).second) {
      return invalid_argument(
          fmt::format("line {}: the name {} stands in an earlier line", line, key->name));
    }
    if (keys.size() == kMaxNamedKeys) {
      return invalid_argument(fmt::format("line {}: more than {} keys", line, kMaxNamedKeys));
    }
    keys.push_back(*std::move(key));
  }
  return keys;
}

Result<std::vector<ApiKey>> read_api_keys(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxKeyFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return not_found(
        fmt::format("{}: cannot be read; give a file with one key and name per line", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxKeyFileBytes) {
    return invalid_argument(
        fmt::format("{}: larger than {} MiB, no file of keys", path, kMaxKeyFileBytes >> 20));
  }
  Result<std::vector<ApiKey>> keys = parse_api_keys(text);
  if (!keys.ok()) return keys.status().with_context(path);
  if (keys->empty()) {
    return invalid_argument(
        fmt::format("{}: contains no key, so every call would be refused", path));
  }
  return keys;
}

void KeyRing::replace_named(std::vector<ApiKey> keys) {
  named_.clear();
  std::unordered_map<std::string, Usage> kept;
  for (ApiKey& key : keys) {
    const auto usage = usage_.find(key.name);
    if (usage != usage_.end()) kept.insert(*usage);
    named_.push_back(std::make_shared<const ApiKey>(std::move(key)));
  }
  for (const auto& [name, usage] : usage_) {
    // end_request() will still be called for these.
    if (usage.num_requests > 0) kept.insert({name, usage});
  }
  usage_ = std::move(kept);
}

KeyRing::Holder KeyRing::find(std::string_view sent) const {
  Holder holder;
  if (sent.empty()) return holder;
  holder.admin = !admin_key_.empty() && equal_in_constant_time(sent, admin_key_);
  const bool is_user = !api_key_.empty() && equal_in_constant_time(sent, api_key_);
  for (const std::shared_ptr<const ApiKey>& key : named_) {
    if (equal_in_constant_time(sent, key->secret)) holder.key = key;
  }
  holder.known = holder.admin || is_user || holder.key != nullptr;
  return holder;
}

std::shared_ptr<const ApiKey> KeyRing::find_named(std::string_view name) const {
  const auto found = std::ranges::find(
      named_, name, [](const auto& key) -> std::string_view { return key->name; });
  return found == named_.end() ? nullptr : *found;
}

KeyRing::Usage& KeyRing::filled(const ApiKey& key, Time now) {
  Usage& usage = usage_[key.name];
  const double minutes =
      usage.known ? std::chrono::duration<double, std::ratio<60>>(now - usage.filled_at).count()
                  : 1.0;
  usage.requests_left =
      std::min(usage.requests_left + minutes * key.requests_per_minute, key.requests_per_minute);
  usage.tokens_left =
      std::min(usage.tokens_left + minutes * key.tokens_per_minute, key.tokens_per_minute);
  usage.filled_at = now;
  usage.known = true;
  return usage;
}

std::optional<ApiError> KeyRing::begin_request(const ApiKey& key, Time now) {
  Usage& usage = filled(key, now);
  if (key.max_requests > 0 && usage.num_requests >= key.max_requests) {
    return rate_limit(key, fmt::format("{} requests at once", key.max_requests), 1);
  }
  if (key.requests_per_minute > 0 && usage.requests_left < 1) {
    return rate_limit(key, fmt::format("{} requests a minute", key.requests_per_minute),
                      (1 - usage.requests_left) * 60 / key.requests_per_minute);
  }
  if (key.tokens_per_minute > 0 && usage.tokens_left <= 0) {
    return rate_limit(key, fmt::format("{} tokens a minute", key.tokens_per_minute),
                      (1 - usage.tokens_left) * 60 / key.tokens_per_minute);
  }
  if (key.requests_per_minute > 0) usage.requests_left -= 1;
  ++usage.num_requests;
  return std::nullopt;
}

void KeyRing::end_request(const ApiKey& key) {
  const auto usage = usage_.find(key.name);
  if (usage != usage_.end() && usage->second.num_requests > 0) --usage->second.num_requests;
}

void KeyRing::charge_tokens(const ApiKey& key, int64_t num_tokens, Time now) {
  if (key.tokens_per_minute > 0) filled(key, now).tokens_left -= static_cast<double>(num_tokens);
}

}  // namespace heddle::server
