// SPDX-License-Identifier: Apache-2.0
#include "server/json_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxQuotedError = 200;

ApiError invalid_json(std::string message) {
  return {.code = "invalid_json", .message = std::move(message)};
}

// Bytes of values as std::vector, std::string and malloc() lay them out. A vector that
// grows has its old room and its new one, a string up to twice the room it needs.
constexpr int64_t kItemBytes = 2 * sizeof(Json);
constexpr int64_t kStringBytes = 48;
constexpr int64_t kEntryBytes = 2 * sizeof(Json::object_t::value_type) - kStringBytes;  // sans key
constexpr int64_t kContainerBytes = 64;
constexpr int64_t kShortString = 15;      // kept in the string itself
constexpr int64_t kAllocationBytes = 17;  // beside a longer one's characters

// Sees before anything is built how deep a text nests, how large its objects are and what it would
// take. Malformed text passes: the parser says why.
class LimitCheck {
 public:
  explicit LimitCheck(std::string_view text)
      : text_(text), max_bytes_(kJsonGrowth * std::ssize(text) + kFreeJsonBytes) {}

  // Says, to follow the name of the text, of which there is too much; empty: of nothing.
  std::string run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      switch (text_[i]) {
        case '"':
          i = skip_string(i);
          break;
        case '{':
        case '[':
          if (++depth_ > kMaxJsonDepth) {
            return fmt::format("nests deeper than {} levels", kMaxJsonDepth);
          }
          num_keys_[depth_] = 0;
          is_list_[depth_] = text_[i] == '[';
          bytes_ += kContainerBytes + (is_list_[depth_] ? kItemBytes : 0);
          break;
        case '}':
        case ']':
          if (depth_ > 0) --depth_;
          break;
        case ':':
          if (++num_keys_[depth_] > kMaxJsonObjectKeys) {
            return fmt::format("has an object with more than {} keys", kMaxJsonObjectKeys);
          }
          bytes_ += kEntryBytes;
          break;
        case ',':
          if (is_list_[depth_]) bytes_ += kItemBytes;
          break;
        default:
          break;
      }
      if (bytes_ > max_bytes_) {
        return fmt::format(
            "has so many values that they would take more than {} MiB of memory for {} bytes of "
            "text; send less at once",
            max_bytes_ >> 20, text_.size());
      }
    }
    return {};
  }

 private:
  // From the opening quote to the closing one.
  size_t skip_string(size_t begin) {
    size_t i = begin + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    const auto length = static_cast<int64_t>(i - begin - 1);
    bytes_ += kStringBytes + (length > kShortString ? 2 * length + kAllocationBytes : 0);
    return i;
  }

  const std::string_view text_;
  const int64_t max_bytes_;
  std::array<int, kMaxJsonDepth + 1> num_keys_{};
  std::array<bool, kMaxJsonDepth + 1> is_list_{};
  size_t depth_ = 0;
  int64_t bytes_ = 0;
};

// Makes a value of what nlohmann's parser reads, by the interface of ordered_json::sax_parse().
// False from a function ends the parse. The library's own way looks every key up among those before
// it, which for objects that keep their order is a search from the front. Here keys are only
// appended, and an object is looked through for repeated ones once, when it ends: the last value
// counts, at the first one's place, as with the library.
// Cost: O(bytes), and O(n log n) comparisons for an object of n keys.
class JsonBuilder {
 public:
  bool null() { return add(nullptr) != nullptr; }

  bool boolean(bool value) { return add(value) != nullptr; }

  bool number_integer(int64_t value) { return add(value) != nullptr; }

  bool number_unsigned(uint64_t value) { return add(value) != nullptr; }

  bool number_float(double value, const std::string& /*text*/) { return add(value) != nullptr; }

  bool string(std::string& value) { return add(std::move(value)) != nullptr; }

  bool binary(Json::binary_t& /*value*/) { return false; }  // not of JSON text

  bool start_object(size_t /*size*/) { return open(Json::object()); }

  bool key(std::string& name);
  bool end_object();

  bool start_array(size_t /*size*/) { return open(Json::array()); }

  bool end_array() { return close(); }

  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& error);

  // After sax_parse() returned true.
  Json take() { return std::move(root_); }

  // After it returned false: the library's words.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  Json* add(Json value);  // where it is now
  bool open(Json container);
  bool close();
  void drop_repeated_keys(Json::object_t& object);

  Json root_;
  std::vector<Json*> open_;    // from the root inwards: a container grows only while innermost
  Json* for_key_ = nullptr;    // the value of the key just read
  std::vector<size_t> order_;  // scratch
  std::string error_;
};

bool JsonBuilder::key(std::string& name) {
  auto& object = open_.back()->get_ref<Json::object_t&>();
  for_key_ = &object.emplace_back(std::move(name), nullptr).second;
  return true;
}

bool JsonBuilder::end_object() {
  drop_repeated_keys(open_.back()->get_ref<Json::object_t&>());
  return close();
}

bool JsonBuilder::parse_error(size_t /*position*/, const std::string& /*token*/,
                              const Json::exception& error) {
  error_ = error.what();
  return false;
}

Json* JsonBuilder::add(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  if (auto* const array = open_.back()->get_ptr<Json::array_t*>()) {
    return &array->emplace_back(std::move(value));
  }
  *for_key_ = std::move(value);
  return for_key_;
}

bool JsonBuilder::open(Json container) {
  open_.push_back(add(std::move(container)));
  return true;
}

bool JsonBuilder::close() {
  open_.pop_back();
  return true;
}

void JsonBuilder::drop_repeated_keys(Json::object_t& object) {
  const auto entries = std::span(object.begin(), object.end());  // by position; object[] is by key
  order_.resize(object.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  // By key, and among equal ones as they came.
  std::sort(order_.begin(), order_.end(), [&entries](size_t a, size_t b) {
    const int order = entries[a].first.compare(entries[b].first);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<bool> repeated;  // made when it is needed: it hardly ever is
  for (size_t first = 0, i = 1; i < order_.size(); ++i) {
    if (entries[order_[i]].first != entries[order_[first]].first) {
      first = i;
      continue;
    }
    repeated.resize(object.size());
    repeated[order_[i]] = true;
    entries[order_[first]].second = std::move(entries[order_[i]].second);
  }
  if (repeated.empty()) return;
  Json::object_t kept;
  size_t index = 0;
  for (auto& entry : object) {
    if (!repeated[index++]) kept.push_back(std::move(entry));
  }
  object = std::move(kept);
}

}  // namespace

std::optional<ApiError> parse_json_object(std::string_view text, Json& object,
                                          std::string_view what) {
  if (const std::string excess = LimitCheck(text).run(); !excess.empty()) {
    return invalid_json(fmt::format("{} {}.", what, excess));
  }
  // The library takes a NUL byte for the end of the text and would not see what follows it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return invalid_json(fmt::format("{} is not valid JSON: byte {} is NUL.", what, nul));
  }
  JsonBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view reason = builder.error();
    const size_t bracket = reason.find("] ");
    if (bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
    return invalid_json(
        fmt::format("{} is not valid JSON: {}.", what, reason.substr(0, kMaxQuotedError)));
  }
  object = builder.take();
  if (!object.is_object()) {
    return ApiError{
        .code = "invalid_type",
        .message = fmt::format("{} must be a JSON object, not {}.", what, object.type_name())};
  }
  return std::nullopt;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse json_response(const Json& body) { return {.headers = {}, .body = dump_json(body)}; }

void append_typed_event(const Json& event, std::string& out) {
  out += fmt::format("event: {}\n", event["type"].get_ref<const std::string&>());
  out += sse_event(event);
}

std::string sse_event(const Json& value) {
  std::string event = "data: ";
  event += dump_json(value);
  event += "\n\n";
  return event;
}

}  // namespace heddle::server
