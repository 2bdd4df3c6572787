// SPDX-License-Identifier: Apache-2.0
// JsonBuilder makes a value of what nlohmann's parser reads. The library's own way looks every key
// up among those before it, which for objects that keep their order is a search from the front.
// Here keys are only appended, and an object is looked through for repeated ones once, when it
// ends: the last value counts, at the first one's place, as with the library.
//
// Threading: thread-confined. Cost: O(bytes), and O(n log n) comparisons for an object of n keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::server {

// The interface of nlohmann::ordered_json::sax_parse(). False from a function ends the parse.
class JsonBuilder {
 public:
  using Json = nlohmann::ordered_json;

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

}  // namespace heddle::server
