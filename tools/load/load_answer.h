// SPDX-License-Identifier: Apache-2.0
// LoadAnswer reads one streamed answer of an OpenAI-compatible server, completions or chat, into a
// LoadRecord; SseReader finds the events in it.
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

// Parses server-sent events from bytes cut anywhere (WHATWG HTML, section 9.2). Keeps only event
// data: the measured APIs use nothing else. Cost: reads every byte once; holds one event.
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

class LoadAnswer {
 public:
  explicit LoadAnswer(LoadRecord& record) : record_(record) {}

  // `at`: when the bytes had arrived. A failure they report, or malformed bytes, goes in the
  // record.
  void feed(std::string_view bytes, double at);

  // The connection's part is over. An answer without an end ([DONE], or a reason to finish) is
  // noted as cut.
  void end(double at);

 private:
  void on_event(std::string_view data, double at);

  LoadRecord& record_;
  SseReader reader_;
  int64_t counted_tokens_ = 0;  // output tokens by the server's last usage
  bool finished_ = false;
};

// The words of an error body: its "error.message" or "message", or its beginning.
std::string error_message(std::string_view body);

}  // namespace heddle::tools
