// SPDX-License-Identifier: Apache-2.0
// SseReader: server-sent events out of bytes that may be cut anywhere (WHATWG HTML, section 9.2).
// Only the data of events is kept: the APIs that are measured use nothing else.
//
// Threading: thread-confined. Cost: every byte is looked at once; holds one event.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace heddle::tools {

class SseReader {
 public:
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

  // Calls `on_data` with the data of each event that ended in `bytes`, several lines joined by
  // '\n'. False, from then on, once an event is longer than kMaxEventBytes.
  bool feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  void end_line(const std::function<void(std::string_view)>& on_data);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was '\r'; a '\n' belongs to it
  bool first_line_ = true;
  bool too_long_ = false;
};

}  // namespace heddle::tools
