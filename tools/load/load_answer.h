// SPDX-License-Identifier: Apache-2.0
// LoadAnswer: reads one streamed answer of an OpenAI-compatible server, from completions or chat,
// into a LoadRecord. SseReader: finds the events in it.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tools/load/load_record.h"

namespace heddle::tools {

// Parses server-sent events from bytes that are divided anywhere (WHATWG HTML, section 9.2). Only
// event data is returned, because the measured APIs use nothing else. Cost: reads every byte once;
// buffers one event.
class SseReader {
 public:
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

  // Calls `on_data` with the data of each event that ends in `bytes`; several lines are joined by
  // '\n'. Returns false, from then on, once an event is longer than kMaxEventBytes.
  bool feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  void end_line(const std::function<void(std::string_view)>& on_data);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  // The last byte was '\r'; a following '\n' belongs to the same line end.
  bool after_return_ = false;
  bool first_line_ = true;
  bool too_long_ = false;
};

class LoadAnswer {
 public:
  explicit LoadAnswer(LoadRecord& record) : record_(record) {}

  // Adds bytes that arrived at time `at`. A failure that they report, and malformed bytes, are
  // recorded.
  void feed(std::string_view bytes, double at);

  // Called when the connection has no more bytes. An answer without an end ([DONE], or a finish
  // reason) is recorded as cut off.
  void end(double at);

 private:
  void on_event(std::string_view data, double at);

  LoadRecord& record_;
  SseReader reader_;
  int64_t counted_tokens_ = 0;  // output tokens in the server's last usage
  bool finished_ = false;
};

// The message in an error body: its "error.message" or "message", or else its beginning.
std::string error_message(std::string_view body);

}  // namespace heddle::tools
