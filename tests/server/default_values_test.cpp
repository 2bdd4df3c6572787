// SPDX-License-Identifier: Apache-2.0
// Values by which other servers and their clients say nothing are no errors, in any API. And names
// of fields in errors are those that were sent.
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/formats.h"
#include "server/call/field_reader.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DefaultValuesTest : public ServerTest {
 protected:
  static Json messages() { return Json::array({{{"role", "user"}, {"content", "Hi"}}}); }

  // A request to each route with sampling fields, which may lie in an object of their own.
  static std::vector<std::pair<std::string, Json>> calls_with(const Json& fields) {
    std::vector<std::pair<std::string, Json>> calls = {
        {kChat, {{"messages", messages()}}},
        {"/v1/completions", {{"prompt", "Hi"}}},
        {"/v1/responses", {{"input", "Hi"}}},
        {"/v1/messages", {{"messages", messages()}, {"max_tokens", 9}}},
    };
    for (auto& [path, body] : calls) body.update(fields);
    calls.push_back({"/generate", {{"text", "Hi"}, {"sampling_params", fields}}});
    calls.push_back({"/api/chat", {{"messages", messages()}, {"options", fields}}});
    calls.push_back({"/api/generate", {{"prompt", "Hi"}, {"options", fields}}});
    return calls;
  }

  // The sampling that every route makes of these fields.
  [[nodiscard]] std::vector<Request> requests_with(const Json& fields) const {
    std::vector<Request> requests;
    for (const auto& [path, body] : calls_with(fields)) {
      const Reply reply = post(path, body);
      EXPECT_EQ(reply.status, 200) << path << " " << fields << reply.body;
      requests.push_back(engine->submitted().back());
    }
    return requests;
  }

  [[nodiscard]] std::string message_of(std::string_view path, const Json& body) const {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << path << " " << body << reply.body;
    const Json error = reply.json()["error"];
    return error.is_string() ? error.get<std::string>() : error["message"].get<std::string>();
  }
};

TEST_F(DefaultValuesTest, ATopKOfNothingIsOff) {
  engine->mutable_model_info().default_sampling.top_k = 20;
  start();
  for (const int64_t off : {0, -1}) {
    for (const Request& request : requests_with({{"top_k", off}})) {
      EXPECT_EQ(request.sampling.top_k, -1);
    }
  }
  for (const Request& request : requests_with({{"top_k", int64_t{1} << 40}})) {
    EXPECT_EQ(request.sampling.top_k, std::numeric_limits<int32_t>::max());
  }
  for (const Request& request : requests_with({{"top_k", nullptr}})) {
    EXPECT_EQ(request.sampling.top_k, 20);
  }
  EXPECT_THAT(message_of(kChat, chat_body({{"top_k", -2}})), HasSubstr("`top_k` is -2"));
  EXPECT_EQ(post("/api/generate", {{"prompt", "x"}, {"options", {{"top_k", -40}}}}).status, 200)
      << "as llama.cpp, which Ollama runs, has it";
}

TEST_F(DefaultValuesTest, ATopPOfNothingIsTaken) {
  start();
  for (const Request& request : requests_with({{"top_p", 0}})) {
    EXPECT_EQ(request.sampling.top_p, 0.0f);
  }
  for (const Request& request : requests_with({{"top_p", 0.0}, {"min_p", 0}, {"temperature", 1}})) {
    EXPECT_EQ(request.sampling.top_p, 0.0f);
    EXPECT_EQ(request.sampling.min_p, 0.0f);
  }
  for (const auto& [path, body] : calls_with({{"top_p", -0.1}})) {
    EXPECT_THAT(message_of(path, body), HasSubstr("it must be at least 0 and at most 1")) << path;
  }
}

TEST_F(DefaultValuesTest, NeutralValuesOfOtherServersAreTaken) {
  start();
  const Json neutral = {
      {"repetition_penalty", 1}, {"frequency_penalty", 0}, {"presence_penalty", 0.0},
      {"repeat_penalty", 1.0},   {"n", nullptr},           {"stop", nullptr},
      {"logit_bias", nullptr},   {"seed", nullptr},        {"stop_token_ids", {}},
      {"min_tokens", 0},         {"bad_words", {}},        {"allowed_token_ids", nullptr},
      {"stop_regex", {}},        {"ignore_eos", false}};
  for (const Request& request : requests_with(neutral)) {
    EXPECT_EQ(request.sampling.repetition_penalty, 1.0f);
    EXPECT_EQ(request.sampling.seed, std::nullopt);
    EXPECT_THAT(request.stop.texts, IsEmpty());
    EXPECT_THAT(request.sampling.logit_bias, IsEmpty());
  }
  for (const Json& stop : {Json(""), Json::array()}) {
    for (const Request& request : requests_with({{"stop", stop}})) {
      EXPECT_THAT(request.stop.texts, IsEmpty());
    }
  }
  const Json of_chats[] = {{{"logit_bias", Json::array()}},
                           {{"logprobs", false}, {"top_logprobs", 0}},
                           {{"functions", Json::array()}, {"function_call", "none"}},
                           {{"tools", Json::array()}, {"tool_choice", "auto"}},
                           {{"tools", nullptr}, {"tool_choice", "none"}},
                           {{"response_format", nullptr}, {"stream_options", nullptr}},
                           {{"modalities", {"text"}}, {"audio", nullptr}, {"user", ""}}};
  for (const Json& fields : of_chats) {
    const Reply reply = post(kChat, chat_body(fields));
    EXPECT_EQ(reply.status, 200) << fields << reply.body;
  }
}

TEST_F(DefaultValuesTest, ASeedOfMinusOneIsNone) {
  start();
  for (const auto& [path, body] : calls_with({{"seed", -1}, {"sampling_seed", -1}})) {
    EXPECT_EQ(post(path, body).status, 200);
    EXPECT_EQ(engine->submitted().back().sampling.seed, std::nullopt) << path;
  }
  EXPECT_EQ(post(kChat, chat_body({{"seed", std::numeric_limits<uint64_t>::max()}})).status, 200);
  EXPECT_EQ(engine->submitted().back().sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(post(kChat, chat_body({{"seed", -2}})).status, 200);
  EXPECT_NE(engine->submitted().back().sampling.seed, std::nullopt);
}

TEST_F(DefaultValuesTest, ALimitOfMinusOneIsTheRestOfTheContext) {
  engine->mutable_model_info().context_length = 100;
  start();
  const std::pair<const char*, Json> calls[] = {
      {kChat, {{"messages", messages()}, {"max_tokens", -1}}},
      {kChat, {{"messages", messages()}, {"max_completion_tokens", -1}}},
      {"/v1/completions", {{"prompt", "Hi"}, {"max_tokens", -1}}},
      {"/v1/responses", {{"input", "Hi"}, {"max_output_tokens", -1}}},
      {"/generate", {{"text", "Hi"}, {"sampling_params", {{"max_new_tokens", -1}}}}},
      {"/api/generate", {{"prompt", "Hi"}, {"options", {{"num_predict", -1}}}}},
      {"/api/chat", {{"messages", messages()}, {"options", {{"num_predict", -2}}}}},
  };
  for (const auto& [path, body] : calls) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << path << reply.body;
    const Request request = engine->submitted().back();
    EXPECT_EQ(request.stop.max_new_tokens, 100 - std::ssize(request.prompt)) << path;
  }
  EXPECT_EQ(post("/v1/responses", calls[3].second).json()["max_output_tokens"], nullptr);
  EXPECT_THAT(message_of(kChat, chat_body({{"max_tokens", -2}})), HasSubstr("`max_tokens` is -2"));
  EXPECT_THAT(message_of("/v1/messages", {{"messages", messages()}, {"max_tokens", -1}}),
              HasSubstr("`max_tokens` is -1; it must be at least 1"));
}

TEST_F(DefaultValuesTest, ErrorsHaveTheNamesThatWereSent) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const Json wrong_schema = {{"type", "object"}, {"properties", {{"a", {{"type", "wrong"}}}}}};

  struct Case {
    const char* path;
    Json fields;
    std::string named;
  };

  const Case cases[] = {
      {"/v1/messages", {{"stop_sequences", {"a", ""}}}, "`stop_sequences` may not"},
      {"/v1/messages", {{"metadata", {{"user_id", std::string(2000, 'x')}}}}, "`metadata.user_id`"},
      {"/v1/messages", {{"top_k", -3}}, "`top_k`"},
      {"/v1/messages",
       {{"output_config", {{"format", {{"type", "json_schema"}, {"schema", wrong_schema}}}}}},
       "`output_config.format`"},
      {"/v1/messages",
       {{"tools",
         {{{"type", "web_search_20250305"}, {"name", "web_search"}},
          {{"name", "f"}, {"strict", true}, {"input_schema", wrong_schema}}}}},
       "`tools[1].input_schema`"},
      {"/v1/responses",
       {{"text", {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", wrong_schema}}}}}},
       "`text.format`"},
      {"/v1/responses",
       {{"tools",
         {{{"type", "web_search"}},
          {{"type", "namespace"},
           {"name", "n"},
           {"tools",
            {{{"type", "function"},
              {"name", "f"},
              {"strict", true},
              {"parameters", wrong_schema}}}}}}}},
       "`tools[1].tools[0].parameters`"},
      {"/api/chat", {{"options", {{"repeat_penalty", 9}}}}, "`options.repeat_penalty`"},
      {"/api/chat", {{"options", {{"temperature", -1}}}}, "`options.temperature`"},
      {"/api/chat", {{"options", {{"top_p", 2}}}}, "`options.top_p`"},
      {"/api/chat", {{"options", {{"stop", std::vector<std::string>(17, "x")}}}}, "`options.stop`"},
      {"/api/chat", {{"options", {{"num_predict", 1.5}}}}, "`options.num_predict`"},
      {"/api/chat", {{"format", wrong_schema}}, "`format`"},
      {"/api/chat", {{"think", "enormous"}}, "`think`"},
      {"/generate", {{"sampling_params", {{"top_k", -3}}}}, "`sampling_params.top_k`"},
      {"/vertex_generate",
       {{"parameters", {{"sampling_params", {{"top_k", -3}}}}}},
       "`parameters.sampling_params.top_k`"},
      {"/generate",
       {{"sampling_params", {{"stop", std::vector<std::string>(17, "x")}}}},
       "`sampling_params.stop`"},
  };
  for (const Case& wrong : cases) {
    Json body = {{"messages", messages()}, {"max_tokens", 9}};
    const std::string_view path = wrong.path;
    if (path == "/v1/responses") body = {{"input", "Hi"}};
    if (path == "/generate") body = {{"text", "Hi"}};
    if (path == "/vertex_generate") body = {{"instances", {{{"text", "Hi"}}}}};
    body.update(wrong.fields);
    EXPECT_THAT(message_of(wrong.path, body), HasSubstr(wrong.named)) << wrong.fields;
  }
}

TEST(FieldNamesTest, RenamesWholeNamesOfFieldsAlone) {
  FieldNames names;
  names.add("stop", "stop_sequences");
  names.add("tools[0]", "tools[3]");
  names.add("tools[0].function.parameters", "tools[3].input_schema");
  ApiError error{.message =
                     "`stop` and `stop[2]`, not `stops` or stop; `tools[0].name`, "
                     "`tools[0].function.parameters.x`, `tools[01]` and an open `stop",
                 .param = "stop"};
  names.restore(error);
  EXPECT_EQ(error.param, "stop_sequences");
  EXPECT_EQ(error.message,
            "`stop_sequences` and `stop_sequences[2]`, not `stops` or stop; `tools[3].name`, "
            "`tools[3].input_schema.x`, `tools[01]` and an open `stop");
}

}  // namespace
}  // namespace heddle::server
