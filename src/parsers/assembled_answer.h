// SPDX-License-Identifier: Apache-2.0
// AssembledAnswer: an answer's deltas put together, for answers that are sent as a whole.
//
// Threading: thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "parsers/answer_delta.h"

namespace heddle::parsers {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object

  bool operator==(const ToolCall&) const = default;
};

struct AssembledAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  // A call that ends incomplete is removed; its text becomes content.
  void add(AnswerDelta&& delta);

  bool operator==(const AssembledAnswer&) const = default;
};

}  // namespace heddle::parsers
