// SPDX-License-Identifier: Apache-2.0
// Answers of the OpenAI routes against OpenAI's own description of them.
#include <fstream>
#include <utility>

#include "server/openapi_schema.h"
#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class OpenApiTest : public ServerTest {
 protected:
  void SetUp() override {
    HEDDLE_SHARED_PATH_OR_SKIP(path, "data/openapi/openai-openapi.json");
    std::ifstream file(path);
    schema_ = OpenApiSchema::parse(file);
    options.tool_call_format = parsers::ToolCallFormat::kQwen;
    options.reasoning_format = parsers::ReasoningFormat::kThink;
    engine->script = [](const Request& request) {
      std::vector<RequestEvent> events = answer_events(
          {"<think>Hm", "</think>", "Let me see. ",
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"});
      for (RequestEvent& event : events) {
        if (request.return_logprobs) {
          for (const TokenId token : event.tokens) {
            event.logprobs.push_back({token, -0.5f, {{token, -0.5f}}});
          }
        }
      }
      return events;
    };
    start();
  }

  void expect_valid(const char* name, const Json& value) const {
    EXPECT_EQ(schema_->check(name, value), "") << value.dump();
  }

  // Every event but the end marker.
  void expect_valid_stream(const char* name, const Reply& reply) const {
    ASSERT_EQ(reply.status, 200) << reply.body;
    size_t count = 0;
    for (size_t at = 0; (at = reply.body.find("data: ", at)) != std::string::npos; at += 6) {
      const std::string data = reply.body.substr(at + 6, reply.body.find("\n\n", at) - at - 6);
      if (data == "[DONE]") continue;
      Json event = Json::parse(data);
      if (event["object"] == "text_completion" && event["choices"][0]["finish_reason"].is_null()) {
        // The description has one schema for whole and streamed completions and forgets that a
        // stream's events have no finish reason but the last. OpenAI's server sends null, too.
        event["choices"][0]["finish_reason"] = "stop";
      }
      expect_valid(name, event);
      ++count;
    }
    EXPECT_GT(count, 3u);
  }

  static Json tools() {
    return Json::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
  }

  // The same tool, in the form of the Responses API.
  static Json responses_tools() {
    return Json::parse(R"([{"type": "function", "name": "f", "strict": false,
                            "parameters": {"type": "object"}}])");
  }

  std::optional<OpenApiSchema> schema_;
};

TEST_F(OpenApiTest, TheCheckerSeesWhatIsMissing) {
  Json answer = post("/v1/chat/completions", chat_body()).json();
  answer["choices"][0]["message"].erase("refusal");
  EXPECT_EQ(schema_->check("CreateChatCompletionResponse", answer),
            "CreateChatCompletionResponse.choices[0].message lacks refusal");
}

TEST_F(OpenApiTest, ChatCompletionsAreAsDescribed) {
  const std::pair<Json, const char*> cases[] = {
      {Json::object(), R"("content":)"},
      {Json{{"tools", tools()}}, R"("tool_calls":[{)"},
      {Json{{"n", 2}}, R"("index":1)"},
      {Json{{"logprobs", true}, {"top_logprobs", 1}, {"separate_reasoning", false}},
       R"("top_logprobs":[{)"}};
  for (const auto& [extra, shown] : cases) {
    const Reply whole = post("/v1/chat/completions", chat_body(extra));
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_THAT(whole.body, HasSubstr(shown));
    expect_valid("CreateChatCompletionResponse", whole.json());
    Json body = chat_body(extra);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const Reply streamed = post("/v1/chat/completions", body);
    EXPECT_THAT(streamed.body, HasSubstr(shown));
    expect_valid_stream("CreateChatCompletionStreamResponse", streamed);
  }
}

TEST_F(OpenApiTest, CompletionsAreAsDescribed) {
  for (const Json& extra : {Json::object(), Json{{"logprobs", 1}}, Json{{"n", 2}}}) {
    Json body = {{"prompt", "Once"}};
    body.update(extra);
    const Reply whole = post("/v1/completions", body);
    ASSERT_EQ(whole.status, 200) << whole.body;
    expect_valid("CreateCompletionResponse", whole.json());
    body["stream"] = true;
    expect_valid_stream("CreateCompletionResponse", post("/v1/completions", body));
  }
}

TEST_F(OpenApiTest, ModelsAreAsDescribed) {
  expect_valid("ListModelsResponse", get("/v1/models").json());
  expect_valid("Model", get("/v1/models/m").json());
}

TEST_F(OpenApiTest, ResponsesAreAsDescribed) {
  for (const Json& extra : {Json::object(), Json{{"tools", responses_tools()}}}) {
    Json body = {{"model", "m"}, {"input", "Hi"}};
    body.update(extra);
    const Reply whole = post("/v1/responses", body);
    ASSERT_EQ(whole.status, 200) << whole.body;
    expect_valid("Response", whole.json());
    body["stream"] = true;
    expect_valid_stream("ResponseStreamEvent", post("/v1/responses", body));
  }
}

TEST_F(OpenApiTest, BackgroundResponsesAreAsDescribedAtEveryStage) {
  engine->held = true;
  const Json queued = post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json();
  expect_valid("Response", queued);
  const std::string path = "/v1/responses/" + queued["id"].get<std::string>();
  expect_valid("Response", get(path).json());
  expect_valid("Response", post(path + "/cancel", Json::object()).json());
  engine->held = false;
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  expect_valid("Response", get(path).json());
}

// The items that are sent lack the fields that clients may leave out, which the list must have.
TEST_F(OpenApiTest, InputItemsAreAsDescribed) {
  const Json first = post("/v1/responses", {{"input", "Hi"}, {"tools", responses_tools()}}).json();
  const Json input = Json::parse(R"([
      {"role": "user", "content": "Hi"},
      {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
      {"role": "assistant", "content": "Hello"},
      {"type": "reasoning", "id": "rs_1", "summary": []},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": "42"}])");
  const Reply second =
      post("/v1/responses", {{"input", input}, {"previous_response_id", first["id"]}});
  ASSERT_EQ(second.status, 200) << second.body;
  const Json page =
      get("/v1/responses/" + second.json()["id"].get<std::string>() + "/input_items").json();
  EXPECT_EQ(page["data"].size(), 1 + first["output"].size() + input.size());
  expect_valid("ResponseItemList", page);
  for (const Json& item : page["data"]) expect_valid("ItemResource", item);
}

TEST_F(OpenApiTest, ErrorsAreAsDescribed) {
  for (const char* const path : {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                 "/v1/embeddings", "/v1/files", "/v1/batches", "/nowhere"}) {
    const Reply reply = post(path, {{"temperature", "hot"}});
    EXPECT_GE(reply.status, 400) << path;
    expect_valid("ErrorResponse", reply.json());
  }
  expect_valid("ErrorResponse", get("/v1/models/x").json());
  expect_valid("ErrorResponse", get("/v1/responses/x").json());
  expect_valid("ErrorResponse", get("/v1/responses/x/input_items").json());
  expect_valid("ErrorResponse", get("/v1/files/x").json());
  expect_valid("ErrorResponse", get("/v1/batches/x").json());
  expect_valid("ErrorResponse", get("/v1/chat/completions").json());
}

}  // namespace
}  // namespace heddle::server
