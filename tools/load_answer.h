// SPDX-License-Identifier: Apache-2.0
// LoadAnswer reads one streamed answer of an OpenAI-compatible server, completions or chat, into a
// LoadRecord.
//
// Threading: thread-confined.
#pragma once

#include <string_view>

#include "load_record.h"
#include "sse_reader.h"

namespace heddle::tools {

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
  int64_t counted_tokens_ = 0;  // by the server's last usage
  bool finished_ = false;
};

// The words of an error body: its "error.message" or "message", or its beginning.
std::string error_message(std::string_view body);

}  // namespace heddle::tools
