// SPDX-License-Identifier: Apache-2.0
#include "server/api/anthropic/anthropic_answer.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "parsers/json_scanner.h"
#include "server/api/openai/delta_adapter.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The id of a call in this API: "toolu_12" for "call_12".
std::string tool_use_id(const std::string& call_id) {
  constexpr std::string_view kPrefix = "call_";
  return call_id.starts_with(kPrefix) ? "toolu_" + call_id.substr(kPrefix.size()) : call_id;
}

class MessagesAdapter final : public DeltaAdapter {
 public:
  using DeltaAdapter::DeltaAdapter;

  JsonPieces body() override {
    JsonPieces body;
    body.begin_object();
    begin_message(body);
    body.key("content").begin_list();
    for (const AnswerPart& part : parts()) {
      body.begin_object().key("type");
      switch (part.kind) {
        case AnswerPart::Kind::kReasoning:
          body.value("thinking").key("thinking").text(part.text).key("signature").value("");
          break;
        case AnswerPart::Kind::kContent:
          body.value("text").key("text").text(part.text);
          break;
        case AnswerPart::Kind::kCall:
          body.value("tool_use").key("id").value(tool_use_id(part.call.id));
          body.key("name").value(part.call.name).key("input").value(input_of(part.call));
          break;
      }
      body.end_object();
    }
    body.end_list();
    const auto [reason, sequence] = stop_of();
    body.key("stop_reason").value(reason).key("stop_sequence").value(sequence);
    Json usage = input_usage();
    usage["output_tokens"] = counts().completion_tokens;
    body.key("usage").value(usage);
    return std::move(body.end_object());
  }

  void error(const ApiError& failure, std::string& out) override {
    append_typed_event(Json{{"type", "error"}, {"error", anthropic_error(failure)}}, out);
  }

 protected:
  void begin(std::string& out) override {
    Json usage = input_usage();
    usage["output_tokens"] = 0;
    append_typed_event(Json{{"type", "message_start"},
                            {"message",
                             {{"id", options().id},
                              {"type", "message"},
                              {"role", "assistant"},
                              {"model", options().model},
                              {"content", Json::array()},
                              {"stop_reason", nullptr},
                              {"stop_sequence", nullptr},
                              {"usage", std::move(usage)}}}},
                       out);
    append_typed_event(Json{{"type", "ping"}}, out);
  }

  void deliver(const parsers::AnswerDelta& delta, std::string& out) override {
    if (const auto* const more = std::get_if<parsers::ReasoningDelta>(&delta)) {
      open_block(Block::kThinking, out);
      append_delta({{"type", "thinking_delta"}, {"thinking", more->text}}, out);
    } else if (const auto* const text = std::get_if<parsers::ContentDelta>(&delta)) {
      open_block(Block::kText, out);
      append_delta({{"type", "text_delta"}, {"text", text->text}}, out);
    } else if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      close_block(out);
      block_ = Block::kToolUse;
      append_start({{"type", "tool_use"},
                    {"id", tool_use_id(call->id)},
                    {"name", call->name},
                    {"input", Json::object()}},
                   out);
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      append_delta({{"type", "input_json_delta"}, {"partial_json", arguments->json}}, out);
    } else {
      close_block(out);
    }
  }

  void finish(std::string& out) override {
    close_block(out);
    const auto [reason, sequence] = stop_of();
    append_typed_event(Json{{"type", "message_delta"},
                            {"delta", {{"stop_reason", reason}, {"stop_sequence", sequence}}},
                            {"usage", {{"output_tokens", counts().completion_tokens}}}},
                       out);
    append_typed_event(Json{{"type", "message_stop"}}, out);
  }

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  void begin_message(JsonPieces& body) const {
    body.key("id").value(options().id).key("type").value("message");
    body.key("role").value("assistant").key("model").value(options().model);
  }

  [[nodiscard]] Json input_usage() const {
    return {{"input_tokens", counts().prompt_tokens - counts().cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", counts().cached_tokens}};
  }

  // The stop reason, and the stop sequence or null.
  [[nodiscard]] std::pair<const char*, Json> stop_of() const {
    const Finish finish = finished();
    if (finish.reason == FinishReason::kLength) return {"max_tokens", nullptr};
    if (finish.reason == FinishReason::kStop && called()) {
      return {"tool_use", nullptr};
    }
    if (finish.matched_text) return {"stop_sequence", *finish.matched_text};
    return {"end_turn", nullptr};
  }

  [[nodiscard]] static Json input_of(const parsers::ToolCall& call) {
    return object_of_json(call.complete ? call.arguments
                                        : parsers::completed_object(call.arguments));
  }

  void append_start(Json block, std::string& out) const {
    append_typed_event(Json{{"type", "content_block_start"},
                            {"index", num_blocks_},
                            {"content_block", std::move(block)}},
                       out);
  }

  void append_delta(Json delta, std::string& out) const {
    append_typed_event(
        Json{{"type", "content_block_delta"}, {"index", num_blocks_}, {"delta", std::move(delta)}},
        out);
  }

  void open_block(Block kind, std::string& out) {
    if (block_ == kind) return;
    close_block(out);
    block_ = kind;
    append_start(kind == Block::kText
                     ? Json{{"type", "text"}, {"text", ""}}
                     : Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}},
                 out);
  }

  void close_block(std::string& out) {
    if (block_ == Block::kNone) return;
    // Some clients drop thinking that has no signature.
    if (block_ == Block::kThinking)
      append_delta({{"type", "signature_delta"}, {"signature", ""}}, out);
    block_ = Block::kNone;
    append_typed_event(Json{{"type", "content_block_stop"}, {"index", num_blocks_++}}, out);
  }

  Block block_ = Block::kNone;  // kind of the open block
  size_t num_blocks_ = 0;       // number of closed blocks
};

}  // namespace

std::unique_ptr<ApiAdapter> make_messages_adapter(ChatAnswerOptions options) {
  return std::make_unique<MessagesAdapter>(std::move(options));
}

}  // namespace heddle::server
