// SPDX-License-Identifier: Apache-2.0
// A real server and a real engine with a scripted model (scripted_model.h), asked through any of
// the chat APIs, whose answers come back in one form:
//
//   class MyTest : public ScriptedFixture {};
//   TEST_F(MyTest, ...) {
//     model.scripts = {{"A", "<tool_call>..</tool_call>"}};
//     options.tool_call_format = parsers::ToolCallFormat::kQwen;   // else by the template
//     options.reasoning_format = parsers::ReasoningFormat::kThink;
//     start_scripted();
//     for (ScriptedApi api : kScriptedApis) for (bool stream : {false, true}) {
//       const ScriptedAnswer answer = ask({.api = api, .stream = stream, .tools = weather_tool()});
//       EXPECT_EQ(answer.calls, ...);  // and text, reasoning, order, finish, the counts of tokens
//     }
//   }
//
// Requests of an API that differ from what ask() sends go through post(); read_answer() reads their
// replies, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_fixture.h"
#include "core/exact_json.h"
#include "server/real_engine_fixture.h"
#include "server/scripted_model.h"

namespace heddle::server {

enum class ScriptedApi : uint8_t { kChatCompletions, kResponses, kMessages, kOllama };

inline constexpr std::array kScriptedApis = {ScriptedApi::kChatCompletions, ScriptedApi::kResponses,
                                             ScriptedApi::kMessages, ScriptedApi::kOllama};

struct ScriptedQuestion {
  ScriptedApi api = ScriptedApi::kChatCompletions;
  bool stream = false;
  std::string script = "A";     // what the user says: its last character picks the script
  Json tools = nullptr;         // as chat completions have them; the others get theirs
  int64_t max_tokens = 1000;    // under the API's name of it
  Json extra = Json::object();  // further fields of the body, or others
};

struct ScriptedCall {
  std::string name;
  std::string arguments;  // JSON as dump_exact_json() writes it; of no JSON the text as it came

  bool operator==(const ScriptedCall&) const = default;

  friend void PrintTo(const ScriptedCall& call, std::ostream* out) {
    *out << call.name << call.arguments;
  }
};

// ScriptedAnswer: an answer as a client puts it together. `order` names the parts that stand one
// behind the other: "reasoning", "text", "call"; a whole answer of chat and Ollama has no order,
// and gets this one.
struct ScriptedAnswer {
  int status = 0;
  std::string text;
  std::string reasoning;
  std::vector<ScriptedCall> calls;
  std::vector<std::string> order;
  std::string finish;  // "stop", "length" or "tool_calls", whatever the API calls them
  int64_t prompt_tokens = -1;
  int64_t cached_tokens = -1;  // -1: the API does not say
  int64_t completion_tokens = -1;
  int64_t reasoning_tokens = -1;  // likewise
  std::string body;               // as it came
};

// A function as chat completions name it, with these properties, all required.
inline Json scripted_tool(std::string_view name, const Json& properties = Json::object()) {
  Json required = Json::array();
  for (const auto& [key, schema] : properties.items()) required.push_back(key);
  return {
      {"type", "function"},
      {"function",
       {{"name", name},
        {"description", "What it does."},
        {"parameters", {{"type", "object"}, {"properties", properties}, {"required", required}}}}}};
}

class ScriptedFixture : public RealEngineFixture {
 protected:
  ScriptedModel model;  // change it, `options` and `engine_options` before start_scripted()

  void start_scripted() {
    model.write(folder_.path());
    engine_options.model_dir = folder_.path();
    engine_options.max_total_tokens = 2 * model.context_length;
    start_real();
  }

  [[nodiscard]] std::filesystem::path model_folder() const { return folder_.path(); }

  [[nodiscard]] static const char* path_of(ScriptedApi api) {
    switch (api) {
      case ScriptedApi::kChatCompletions:
        return "/v1/chat/completions";
      case ScriptedApi::kResponses:
        return "/v1/responses";
      case ScriptedApi::kMessages:
        return "/v1/messages";
      case ScriptedApi::kOllama:
        break;
    }
    return "/api/chat";
  }

  [[nodiscard]] static Json body_of(const ScriptedQuestion& question) {
    const Json messages = Json::array({{{"role", "user"}, {"content", question.script}}});
    Json body = {{"model", "m"}, {"stream", question.stream}};
    Json tools = question.tools;
    switch (question.api) {
      case ScriptedApi::kChatCompletions:
        body["messages"] = messages;
        body["max_tokens"] = question.max_tokens;
        if (question.stream) body["stream_options"] = {{"include_usage", true}};
        break;
      case ScriptedApi::kResponses:
        body["input"] = question.script;
        body["max_output_tokens"] = question.max_tokens;
        for (Json& tool : tools) {
          Json function = tool["function"];
          function["type"] = "function";
          tool = std::move(function);
        }
        break;
      case ScriptedApi::kMessages:
        body["messages"] = messages;
        body["max_tokens"] = question.max_tokens;
        for (Json& tool : tools) {
          Json own = {{"name", tool["function"]["name"]}};
          own["input_schema"] = tool["function"].value("parameters", Json({{"type", "object"}}));
          tool = std::move(own);
        }
        break;
      case ScriptedApi::kOllama:
        body["messages"] = messages;
        body["options"] = {{"num_predict", question.max_tokens}};
        break;
    }
    if (!tools.is_null()) body["tools"] = std::move(tools);
    body.update(question.extra);
    return body;
  }

  [[nodiscard]] ScriptedAnswer ask(const ScriptedQuestion& question) const {
    return read_answer(question.api, question.stream,
                       post(path_of(question.api), body_of(question)));
  }

  // A reply that is no answer has only its status and body.
  [[nodiscard]] static ScriptedAnswer read_answer(ScriptedApi api, bool stream,
                                                  const Reply& reply) {
    ScriptedAnswer answer{.status = reply.status, .body = reply.body};
    if (reply.status != 200) return answer;
    EXPECT_TRUE(reply.complete);
    AnswerReader reader(answer);
    if (!stream) {
      const auto body = parse_exact_json(reply.body);
      EXPECT_TRUE(body.ok()) << reply.body;
      if (body.ok()) reader.read_whole(api, body.value());
    } else {
      for (const Json& event : events_of(api, reply.body)) reader.read_event(api, event);
    }
    for (ScriptedCall& call : answer.calls) {
      const auto json = parse_exact_json(call.arguments);
      if (json.ok()) call.arguments = dump_exact_json(json.value());
    }
    if (answer.finish == "stop" && !answer.calls.empty()) answer.finish = "tool_calls";
    return answer;
  }

 private:
  static std::vector<Json> events_of(ScriptedApi api, std::string_view body) {
    std::vector<Json> events;
    const std::string_view prefix = api == ScriptedApi::kOllama ? "" : "data: ";
    while (!body.empty()) {
      const std::string_view line = body.substr(0, body.find('\n'));
      body.remove_prefix(std::min(line.size() + 1, body.size()));
      if (line.empty() || !line.starts_with(prefix) || line == "data: [DONE]") continue;
      auto event = parse_exact_json(line.substr(prefix.size()));
      EXPECT_TRUE(event.ok() && event.value().is_object()) << line;
      if (event.ok()) events.push_back(std::move(event).value());
    }
    return events;
  }

  class AnswerReader {
   public:
    explicit AnswerReader(ScriptedAnswer& answer) : answer_(answer) {}

    void read_whole(ScriptedApi api, const Json& body) {
      switch (api) {
        case ScriptedApi::kChatCompletions: {
          const Json& choice = body["choices"][0];
          add_message(choice["message"], "reasoning_content");
          answer_.finish = choice["finish_reason"];
          read_openai_usage(body["usage"]);
          break;
        }
        case ScriptedApi::kResponses:
          for (const Json& item : body["output"]) add_item(item);
          end_response(body);
          break;
        case ScriptedApi::kMessages:
          for (const Json& block : body["content"]) {
            const std::string type = block["type"];
            if (type == "text") add_text(block["text"]);
            if (type == "thinking") add_reasoning(block["thinking"]);
            if (type == "tool_use") begin_call(block["name"]) = dump_exact_json(block["input"]);
          }
          read_messages_usage(body["usage"]);
          end_message(body["stop_reason"]);
          break;
        case ScriptedApi::kOllama:
          add_message(body["message"], "thinking");
          end_ollama(body);
          break;
      }
    }

    void read_event(ScriptedApi api, const Json& event) {
      switch (api) {
        case ScriptedApi::kChatCompletions:
          read_chunk(event);
          break;
        case ScriptedApi::kResponses:
          read_response_event(event);
          break;
        case ScriptedApi::kMessages:
          read_message_event(event);
          break;
        case ScriptedApi::kOllama:
          add_message(event["message"], "thinking");
          if (event["done"] == true) end_ollama(event);
          break;
      }
    }

   private:
    void add_part(const char* part) {
      if (answer_.order.empty() || answer_.order.back() != part) answer_.order.emplace_back(part);
    }

    void add_text(const std::string& text) {
      if (text.empty()) return;
      add_part("text");
      answer_.text += text;
    }

    void add_reasoning(const std::string& text) {
      if (text.empty()) return;
      add_part("reasoning");
      answer_.reasoning += text;
    }

    std::string& begin_call(const std::string& name) {
      add_part("call");
      answer_.calls.push_back({name, ""});
      return answer_.calls.back().arguments;
    }

    static std::string text_of(const Json& value) {
      return value.is_string() ? value.get<std::string>() : std::string();
    }

    // Of a whole answer of chat, and of all of Ollama's, whose calls come whole.
    void add_message(const Json& message, const char* reasoning) {
      add_reasoning(text_of(message.value(reasoning, Json())));
      add_text(text_of(message.value("content", Json())));
      for (const Json& call : message.value("tool_calls", Json::array())) {
        const Json& arguments = call["function"]["arguments"];
        begin_call(call["function"]["name"]) =
            arguments.is_string() ? arguments.get<std::string>() : dump_exact_json(arguments);
      }
    }

    void read_openai_usage(const Json& usage) {
      if (!usage.is_object()) return;
      answer_.prompt_tokens = usage["prompt_tokens"];
      answer_.completion_tokens = usage["completion_tokens"];
      const Json details = usage.value("prompt_tokens_details", Json());
      if (details.is_object()) answer_.cached_tokens = details.value("cached_tokens", int64_t{0});
      answer_.reasoning_tokens = usage.value("reasoning_tokens", int64_t{-1});
      const Json completion = usage.value("completion_tokens_details", Json());
      if (completion.is_object()) {
        answer_.reasoning_tokens = completion.value("reasoning_tokens", answer_.reasoning_tokens);
      }
    }

    void read_chunk(const Json& chunk) {
      read_openai_usage(chunk.value("usage", Json()));
      for (const Json& choice : chunk["choices"]) {
        const Json& delta = choice["delta"];
        add_reasoning(text_of(delta.value("reasoning_content", Json())));
        add_text(text_of(delta.value("content", Json())));
        for (const Json& part : delta.value("tool_calls", Json::array())) {
          const auto index = part["index"].get<size_t>();
          EXPECT_LE(index, answer_.calls.size());
          if (index == answer_.calls.size()) begin_call(part["function"]["name"]);
          answer_.calls[index].arguments += text_of(part["function"]["arguments"]);
        }
        if (!choice["finish_reason"].is_null()) answer_.finish = choice["finish_reason"];
      }
    }

    void add_item(const Json& item) {
      const std::string type = item["type"];
      if (type == "function_call") begin_call(item["name"]) = text_of(item["arguments"]);
      for (const Json& part : item.value("content", Json::array())) {
        type == "reasoning" ? add_reasoning(part["text"]) : add_text(part["text"]);
      }
    }

    void end_response(const Json& response) {
      answer_.finish = response["status"] == "completed" ? "stop" : "length";
      const Json& usage = response["usage"];
      answer_.prompt_tokens = usage["input_tokens"];
      answer_.cached_tokens = usage["input_tokens_details"]["cached_tokens"];
      answer_.completion_tokens = usage["output_tokens"];
      answer_.reasoning_tokens = usage["output_tokens_details"]["reasoning_tokens"];
    }

    void read_response_event(const Json& event) {
      const std::string type = event["type"];
      if (type == "response.output_text.delta") add_text(event["delta"]);
      if (type == "response.reasoning_text.delta") add_reasoning(event["delta"]);
      if (type == "response.output_item.added" && event["item"]["type"] == "function_call") {
        begin_call(event["item"]["name"]);
      }
      if (type == "response.function_call_arguments.delta") {
        answer_.calls.back().arguments += text_of(event["delta"]);
      }
      if (type == "response.completed" || type == "response.incomplete") {
        end_response(event["response"]);
      }
    }

    void read_messages_usage(const Json& usage) {
      if (usage.contains("input_tokens")) {
        answer_.cached_tokens = usage["cache_read_input_tokens"];
        answer_.prompt_tokens = usage["input_tokens"].get<int64_t>() + answer_.cached_tokens;
      }
      answer_.completion_tokens = usage["output_tokens"];
    }

    void end_message(const Json& reason) {
      static const std::map<std::string, std::string> kReasons = {{"end_turn", "stop"},
                                                                  {"stop_sequence", "stop"},
                                                                  {"tool_use", "tool_calls"},
                                                                  {"max_tokens", "length"}};
      const auto found = kReasons.find(reason.get<std::string>());
      EXPECT_TRUE(found != kReasons.end()) << reason;
      if (found != kReasons.end()) answer_.finish = found->second;
    }

    void read_message_event(const Json& event) {
      const std::string type = event["type"];
      if (type == "message_start") read_messages_usage(event["message"]["usage"]);
      if (type == "content_block_start" && event["content_block"]["type"] == "tool_use") {
        begin_call(event["content_block"]["name"]);
      }
      if (type == "content_block_delta") {
        const Json& delta = event["delta"];
        add_text(text_of(delta.value("text", Json())));
        add_reasoning(text_of(delta.value("thinking", Json())));
        if (delta["type"] == "input_json_delta") {
          answer_.calls.back().arguments += text_of(delta["partial_json"]);
        }
      }
      if (type == "message_delta") {
        read_messages_usage(event["usage"]);
        end_message(event["delta"]["stop_reason"]);
      }
    }

    void end_ollama(const Json& body) {
      answer_.finish = body["done_reason"];
      answer_.prompt_tokens = body["prompt_eval_count"];
      answer_.completion_tokens = body["eval_count"];
    }

    ScriptedAnswer& answer_;
  };

  checkpoint::testing::TemporaryFolder folder_;
};

}  // namespace heddle::server
