// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/parse_answer.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"
#include "parsers/parameter_type.h"
#include "server/call/body_fields.h"
#include "server/call/field_reader.h"
#include "server/call/tool_fields.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;
using parsers::AssembledAnswer;

std::shared_ptr<const AssembledAnswer> assemble(std::string_view text,
                                                parsers::AnswerParserOptions options) {
  auto answer = std::make_shared<AssembledAnswer>();
  const auto parser = parsers::make_answer_parser(std::move(options));
  parsers::AnswerDeltas deltas;
  parser->push(text, deltas);
  parser->finish(parsers::TextEnd::kStopped, deltas);
  for (parsers::AnswerDelta& delta : deltas) {
    // A call without its end becomes text, because no stream has shown its beginning.
    if (auto* const end = std::get_if<parsers::ToolCallEnd>(&delta)) end->cut = false;
    answer->add(std::move(delta));
  }
  return answer;
}

// The format that the field `name` selects; the server's own if it is missing or "auto".
template <typename Format>
Format read_format(FieldReader& fields, const Field& name,
                   Result<Format> (*parse)(std::string_view), Format otherwise) {
  const auto wanted = fields.string(name);
  if (!wanted || *wanted == "auto") return otherwise;
  const Result<Format> format = parse(*wanted);
  if (format.ok()) return *format;
  fields.fail(invalid_value(name, format.status().message()));
  return otherwise;
}

// Moves the text out of the body, because it can be most of the body.
std::string read_text(FieldReader& fields) {
  auto text = fields.string(Body::kParse["text"]);
  if (!text) fields.fail(missing_parameter("text"));
  return std::move(text).value_or("");
}

}  // namespace

AnswerResult answer_parse_function_call(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string text = read_text(fields);
  const auto format = read_format(fields, Body::kParseCalls["tool_call_parser"],
                                  parsers::tool_call_format, context.formats.tool_calls);
  const ToolFields tools = read_tool_fields(fields);
  if (fields.error()) return *fields.error();
  if (tools.tools == nullptr) return missing_parameter("tools");
  const auto answer = assemble(text, {.tool_calls = format,
                                      .tools = parsers::point_tools(tools.tools),
                                      .parallel_tool_calls = true,
                                      .keep_call_text = true,
                                      .id_seed = {}});
  JsonPieces answered;
  answered.begin_object().key("normal_text").text(answer->content).key("calls").begin_list();
  for (size_t i = 0; i < answer->calls.size(); ++i) {
    answered.begin_object().key("tool_index").value(i).key("name").text(answer->calls[i].name);
    answered.key("parameters").text(answer->calls[i].arguments).end_object();
  }
  answered.end_list().end_object();
  return JsonAnswer{.body = std::move(answered), .shown = answer};
}

AnswerResult answer_separate_reasoning(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string text = read_text(fields);
  const auto format = read_format(fields, Body::kParseReasoning["reasoning_parser"],
                                  parsers::reasoning_format, context.formats.reasoning);
  if (fields.error()) return *fields.error();
  const auto answer =
      assemble(text, {.reasoning = format,
                      .starts_in_reasoning = parsers::starts_in_reasoning(format, /*prompt=*/{}),
                      .id_seed = {}});
  JsonPieces answered;
  answered.begin_object().key("reasoning_text").text(answer->reasoning);
  answered.key("text").text(answer->content).end_object();
  return JsonAnswer{.body = std::move(answered), .shown = answer};
}

}  // namespace heddle::server
