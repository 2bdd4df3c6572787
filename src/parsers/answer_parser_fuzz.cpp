// SPDX-License-Identifier: Apache-2.0
// Any text as an answer of any format, held to a form or not, whole, byte by byte and cut anywhere:
// what a client puts
// together does not depend on the cuts, a complete call's arguments are a JSON object, and text
// without marks arrives whole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

// The answers that a client of a stream, and one of a whole answer, put together.
struct Emitted {
  AssembledAnswer stream;
  AssembledAnswer whole;

  bool operator==(const Emitted&) const = default;
};

void check_arguments(const AssembledAnswer& answer) {
  for (const ToolCall& call : answer.calls) {
    if (!call.complete) continue;
    HEDDLE_CHECK(!call.name.empty() && !call.id.empty());
    // Broken characters are the model's, not the parser's.
    const Json json = Json::parse(
        Json(call.arguments).dump(-1, ' ', false, Json::error_handler_t::replace), nullptr, false);
    HEDDLE_CHECK(json.is_string());
    const Json arguments = Json::parse(json.get_ref<const std::string&>(), nullptr, false);
    const bool lone_surrogate = call.arguments.find("\\u") != std::string::npos;
    HEDDLE_CHECK(arguments.is_object() || lone_surrogate);
  }
}

// In pieces of 1 to `most` bytes; of `most` bytes each where `seed` is 0.
Emitted parse(AnswerParserOptions options, std::string_view text, TextEnd end, size_t most,
              uint32_t seed) {
  Emitted emitted;
  for (const bool whole : {false, true}) {
    options.keep_call_text = whole;
    const auto parser = make_answer_parser(options);
    AnswerDeltas deltas;
    for (size_t begin = 0; begin < text.size();) {
      size_t size = most;
      if (seed != 0) {
        seed = seed * 1664525 + 1013904223;
        size = 1 + (seed >> 24) % most;
      }
      parser->push(text.substr(begin, size), deltas);
      begin += std::min(size, text.size() - begin);
    }
    parser->finish(end, deltas);
    AssembledAnswer& answer = whole ? emitted.whole : emitted.stream;
    for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  }
  return emitted;
}

}  // namespace
}  // namespace heddle::parsers

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::parsers;
  if (size < 3) return 0;
  static const auto kTools = std::make_shared<const Json>(Json::parse(R"([
      {"type": "function", "function": {"name": "w", "parameters": {"properties": {
        "a": {"type": "integer"}, "n": {"type": "number"}, "y": {"type": "boolean"},
        "l": {"type": "array"}, "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}}}])"));
  AnswerParserOptions options;
  options.tool_calls = static_cast<ToolCallFormat>(data[0] % 18);
  options.reasoning = static_cast<ReasoningFormat>(data[1] % 10);
  options.starts_in_reasoning = (data[2] & 1) != 0;
  options.separate_reasoning = (data[2] & 2) == 0;
  options.parallel_tool_calls = (data[2] & 4) == 0;
  options.is_held_to_form = (data[2] & 16) != 0;
  const TextEnd end = (data[2] & 8) != 0 ? TextEnd::kCut : TextEnd::kStopped;
  options.tools = kTools;
  options.id_seed = "seed";
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Emitted emitted = parse(options, text, end, std::max<size_t>(text.size(), 1), 0);
  HEDDLE_CHECK(emitted == parse(options, text, end, 1, 0));
  HEDDLE_CHECK(emitted == parse(options, text, end, 16, 1));
  HEDDLE_CHECK(emitted == parse(options, text, end, 16, 2));
  check_arguments(emitted.whole);
  // A line "w(a=1)" or "call:w{a:1}" is a call without marks; a code fence may say that a call is
  // in it.
  const bool may_be_bare = options.tool_calls == ToolCallFormat::kPythonic ||
                           options.tool_calls == ToolCallFormat::kLfm2 ||
                           options.tool_calls == ToolCallFormat::kGemma4;
  if (text.find_first_of("<[{`\xE2") == std::string_view::npos && !may_be_bare &&
      !options.starts_in_reasoning && options.reasoning != ReasoningFormat::kThinkFromStart) {
    HEDDLE_CHECK(emitted.whole.content == text);
  }
  return 0;
}
