// SPDX-License-Identifier: Apache-2.0
// Requests that have brought other servers down, numbered as in the list that they come from. Each
// ends with a success or a 4xx, and the server goes on as if nothing had been. Elsewhere are
//   row 1   counts and sizes that overflow    BadHeaderTest ProductOverflow, OverflowBesideZero
//   row 2   token text beyond a buffer        TokenBound.OfAnyBytesTheLongestTokenCounts
//   row 4   shapes against stored bytes       BadHeaderTest ShapeDisagrees, Truncated
//   row 12  huge headers, and the transport   HostileClientsTest
//   row 13  times of comparing keys           EqualInConstantTimeTest
// and row 16, texts of errors, is asked of every refusal here.
#include <limits>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AttackListTest : public ServerTest {
 protected:
  // After every test nothing runs any more, and the next request is answered.
  void TearDown() override {
    if (server == nullptr) return;
    EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_EQ(post(kChat, chat_body()).status, 200);
  }

  // The reply, checked to be a refusal that says nothing of the server's insides (row 16).
  Reply expect_refused(std::string_view path, std::string_view body) const {
    Reply reply = connect().post_text(path, body);
    EXPECT_GE(reply.status, 400) << body.substr(0, 200);
    EXPECT_LT(reply.status, 500) << body.substr(0, 200);
    EXPECT_THAT(reply.body, Not(HasSubstr("0x")));
    EXPECT_THAT(reply.body, Not(HasSubstr(".cpp")));
    EXPECT_LT(reply.body.size(), 4096u) << "an error quotes little of what was sent";
    return reply;
  }

  Json refusal(std::string_view path, const Json& body) const {
    return error_of(expect_refused(path, body.dump()));
  }

  // Answered or refused, but never the server's fault.
  void expect_harmless(std::string_view path, std::string_view body) const {
    const Reply reply = connect().post_text(path, body);
    EXPECT_TRUE(reply.status == 200 || (reply.status >= 400 && reply.status < 500) ||
                reply.status == 501)
        << reply.status << " " << body.substr(0, 200);
  }

  static Json tools_with(Json parameters) {
    return {
        {"tools",
         Json::array({{{"type", "function"},
                       {"function", {{"name", "f"}, {"parameters", std::move(parameters)}}}}})}};
  }

  static std::string repeated(std::string_view text, size_t count) {
    std::string result;
    result.reserve(text.size() * count);
    for (size_t i = 0; i < count; ++i) result += text;
    return result;
  }
};

TEST_F(AttackListTest, Row03PromptsAreCappedByBytesFirst) {
  options.http.max_request_bytes = 1 << 20;
  start();
  HttpClient client = connect();
  client.send(
      "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 8589934592\r\n\r\n{\"text\": ");
  EXPECT_EQ(client.read_reply().status, 413);
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(AttackListTest, Row05EveryNumberMayBeAnything) {
  start();
  const char* const values[] = {"-1",
                                "0",
                                "2147483648",
                                "-2147483649",
                                "9223372036854775807",
                                "-9223372036854775808",
                                "18446744073709551616",
                                "1.5",
                                "-0.0",
                                "1e999",
                                "1e-999",
                                "\"7\"",
                                "true",
                                "[]",
                                "{}",
                                "[1]"};
  const char* const chat_fields[] = {"max_tokens",
                                     "max_completion_tokens",
                                     "min_tokens",
                                     "n",
                                     "seed",
                                     "top_k",
                                     "top_p",
                                     "min_p",
                                     "temperature",
                                     "top_logprobs",
                                     "frequency_penalty",
                                     "presence_penalty",
                                     "priority",
                                     "repetition_penalty",
                                     "stream_interval",
                                     "deadline_ms",
                                     "max_thinking_tokens",
                                     "best_of",
                                     "ttft_slo_ms",
                                     "stop_token_ids"};
  const char* const native_fields[] = {"max_new_tokens", "min_new_tokens", "n",
                                       "top_k",          "top_p",          "sampling_seed",
                                       "temperature",    "stop_token_ids", "stream_interval"};
  // Small answers: what is accepted must not take long.
  for (const char* const value : values) {
    for (const char* const field : chat_fields) {
      expect_harmless(kChat, fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}],
                                             "{}": {}}})",
                                         field, value));
      expect_harmless("/v1/completions",
                      fmt::format(R"({{"prompt": "a", "{}": {}}})", field, value));
    }
    for (const char* const field : native_fields) {
      expect_harmless(
          "/generate",
          fmt::format(R"({{"text": "a", "sampling_params": {{"{}": {}}}}})", field, value));
    }
    for (const char* const field : {"top_logprobs_num", "logprob_start_len", "priority"}) {
      expect_harmless("/generate", fmt::format(R"({{"text": "a", "return_logprob": true,
                                                   "{}": {}}})",
                                               field, value));
    }
    expect_harmless("/generate", fmt::format(R"({{"input_ids": [{}]}})", value));
    expect_harmless("/detokenize", fmt::format(R"({{"tokens": [{}]}})", value));
    expect_harmless("/v1/messages", fmt::format(R"({{"messages": [{{"role": "user",
                                                     "content": "a"}}], "max_tokens": {}}})",
                                                value));
    expect_harmless("/v1/responses",
                    fmt::format(R"({{"input": "a", "max_output_tokens": {}}})", value));
    expect_harmless("/v1/responses", fmt::format(R"({{"input": "a", "background": {},
                                                      "max_output_tokens": 3}})",
                                                 value));
    expect_harmless("/v1/messages",
                    fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}],
                                     "max_tokens": 9, "thinking": {{"type": "enabled",
                                     "budget_tokens": {}}}}})",
                                value));
    expect_harmless("/api/chat", fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}],
                                                  "options": {{"num_predict": {}}}}})",
                                             value));
    expect_harmless("/slow_down", fmt::format(R"({{"forward_sleep_time": {}}})", value));
    engine->set_step_delay(0);
  }
}

TEST_F(AttackListTest, Row06RequestsBringNoTemplates) {
  start();
  const std::string loop =
      "{% for a in range(10000000) %}{% for b in range(10000000) %}x"
      "{% endfor %}{% endfor %}{{ ''.__class__.__mro__ }}";
  post(kChat, chat_body({{"chat_template", loop}}));
  for (const Request& request : engine->submitted()) EXPECT_LT(request.prompt.size(), 100u);
  const Reply in_content =
      post(kChat, {{"messages", Json::array({{{"role", "user"}, {"content", loop}}})}});
  EXPECT_EQ(in_content.status, 200) << "as text it is only text";
  EXPECT_LT(engine->submitted().back().prompt.size(), loop.size() + 100);
}

TEST_F(AttackListTest, Row07TemplateVariablesAreAnObject) {
  start();
  for (const Json& variables : {Json("x"), Json(7), Json::array({1}), Json(true)}) {
    EXPECT_EQ(refusal(kChat, chat_body({{"chat_template_kwargs", variables}}))["param"],
              "chat_template_kwargs");
  }
}

TEST_F(AttackListTest, Row07TemplateVariablesReplaceNoFieldOfTheServer) {
  start();
  for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
    const Json error = refusal(kChat, chat_body({{"chat_template_kwargs", {{name, Json()}}}}));
    EXPECT_EQ(error["param"], "chat_template_kwargs") << name;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(name));
  }
}

TEST_F(AttackListTest, Row08ToolSchemasMayBeWrong) {
  start();
  for (const Json& parameters :
       {Json("x"), Json(7), Json::array(), Json{{"type", 7}}, Json{{"type", "nonsense"}},
        Json{{"type", "object"}, {"properties", {{"a", {{"pattern", "["}}}}}},
        Json{{"type", "object"}, {"properties", {{"a", {{"pattern", 7}}}}}},
        Json{{"type", "object"}, {"properties", 7}, {"required", 7}}}) {
    for (const char* const choice : {"auto", "required"}) {
      Json body = tools_with(parameters);
      body["tool_choice"] = choice;
      expect_harmless(kChat, chat_body(body).dump());
    }
  }
}

TEST_F(AttackListTest, Row09RegexesThatBlowUp) {
  start();
  for (const std::string& regex :
       {std::string("(a*)*b"), std::string("(a|aa)+$"),
        std::string("((a{1,1000}){1,1000}){1,1000}"), std::string("(.*a){50}"),
        repeated("(a?)", 500) + repeated("a", 500),
        repeated("(", 5000) + "a" + repeated(")", 5000)}) {
    expect_harmless(kChat, chat_body({{"regex", regex}}).dump());
    expect_harmless("/generate",
                    Json{{"text", "a"}, {"sampling_params", {{"regex", regex}}}}.dump());
    expect_harmless("/generate",
                    Json{{"text", "a"}, {"sampling_params", {{"stop_regex", regex}}}}.dump());
    expect_harmless(
        kChat,
        chat_body(tools_with({{"type", "object"}, {"properties", {{"a", {{"pattern", regex}}}}}}))
            .dump());
  }
}

// Each of these tools alone may be compiled; all of them would hold a worker for minutes.
TEST_F(AttackListTest, Row09ToolsThatTakeForeverTogether) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  Json tools = Json::array();
  for (int i = 0; i < 2000; ++i) {
    const std::string pattern = fmt::format("^(x|y)*x(x|y){{11}}z{}$", i);
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", fmt::format("f{}", i)},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"a", {{"type", "string"}, {"pattern", pattern}}}}}}}}}});
  }
  const Reply reply = post(kChat, chat_body({{"tools", tools}, {"tool_choice", "required"}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "grammar_timeout");
  EXPECT_EQ(error_of(reply)["param"], "tools");
  EXPECT_EQ(post(kChat, chat_body()).status, 200);
}

TEST_F(AttackListTest, Row10SchemasThatReferToThemselves) {
  start();
  for (const char* const schema :
       {R"({"$ref": "#"})", R"({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})",
        R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "anyOf": [{"$ref": "#/$defs/a"}]})",
        R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"$ref": "http://127.0.0.1/schema"})", R"({"$ref": "file:///etc/passwd"})"}) {
    const Json format = {{"type", "json_schema"},
                         {"json_schema", {{"name", "a"}, {"schema", Json::parse(schema)}}}};
    expect_harmless(kChat, chat_body({{"response_format", format}}).dump());
    expect_harmless(kChat, chat_body(tools_with(Json::parse(schema))).dump());
  }
}

TEST_F(AttackListTest, Row11SchemasAThousandLevelsDeep) {
  start();
  const std::string schema =
      repeated(R"({"type":"object","properties":{"a":)", 1000) + "{}" + repeated("}}", 1000);
  for (const std::string& body :
       {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":)"
        R"({"name":"f","parameters":)" +
            schema + "}}]}",
        R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",)"
        R"("json_schema":{"name":"a","schema":)" +
            schema + "}}}"}) {
    EXPECT_THAT(expect_refused(kChat, body).body, HasSubstr("levels"));
  }
}

TEST_F(AttackListTest, Row14ASaltKeepsCachesApart) {
  start();
  const auto name_for = [this](const Json& extra) {
    EXPECT_EQ(post(kChat, chat_body(extra)).status, 200);
    return engine->submitted().back().cache_namespace;
  };
  const std::string one = name_for({{"cache_salt", "one"}});
  EXPECT_NE(one, name_for({{"cache_salt", "two"}}));
  EXPECT_NE(one, name_for(Json::object()));
  EXPECT_NE(name_for({{"cache_salt", "a"}, {"extra_key", "bc"}}),
            name_for({{"cache_salt", "ab"}, {"extra_key", "c"}}));
  EXPECT_EQ(one, name_for({{"cache_salt", "one"}}));
}

TEST_F(AttackListTest, Row15SerialisedPayloadsAreNeverRead) {
  start();
  const std::string pickle = "gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAZyZWJvb3SUhZRSlC4=";
  EXPECT_EQ(refusal("/generate",
                    {{"text", "a"}, {"sampling_params", {{"custom_logit_processor", pickle}}}})
                .value("code", ""),
            "unsupported_parameter");
  expect_harmless("/generate", Json{{"text", "a"}, {"image_data", pickle}}.dump());
  EXPECT_EQ(connect().post_text("/generate", "\x80\x04\x95pickle").status, 400);
  EXPECT_EQ(connect().post_text("/update_weights_from_tensor", R"({"a": 1})").status, 501);
}

TEST_F(AttackListTest, Row17MediaIsNotFetched) {
  start();
  for (const char* const url :
       {"http://127.0.0.1:1/a.png", "http://169.254.169.254/latest/meta-data", "file:///etc/passwd",
        "data:image/png;base64,iVBORw0KGgo="}) {
    const Json part = {{"type", "image_url"}, {"image_url", {{"url", url}}}};
    const Json body = {
        {"messages", Json::array({{{"role", "user"}, {"content", Json::array({part})}}})}};
    EXPECT_THAT(refusal(kChat, body)["param"].get<std::string>(), HasSubstr("content"));
  }
}

TEST_F(AttackListTest, Row18ThousandsOfTinyChunks) {
  start();
  HttpClient client = connect();
  client.send("POST /generate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string body = R"({"text": ")" + std::string(30000, 'a') + R"("})";
  for (size_t at = 0; at < body.size(); at += 6) {
    const std::string piece = body.substr(at, 6);
    if (!client.send(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece))) break;
  }
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
  EXPECT_EQ(engine->submitted().back().prompt.size(), 30000u);
}

TEST_F(AttackListTest, Row19AMillionLogprobs) {
  start();
  EXPECT_EQ(refusal(kChat, chat_body({{"logprobs", true}, {"top_logprobs", 1000000}}))["param"],
            "top_logprobs");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", "a"}, {"logprobs", 1000000}})["param"],
            "logprobs");
  EXPECT_EQ(
      refusal("/generate",
              {{"text", "a"}, {"return_logprob", true}, {"top_logprobs_num", 1000000}})["param"],
      "top_logprobs_num");
  refusal(kChat, chat_body({{"n", 1000000}}));
}

TEST_F(AttackListTest, Row20ANegativeNumberToDiscard) {
  start();
  expect_harmless("/v1/completions", R"({"prompt": "a", "n_discard": -1, "n_keep": -1})");
}

TEST_F(AttackListTest, Row21BiasesOutsideTheVocabulary) {
  start();
  for (const char* const id :
       {"-1", "200000", "4294967296", "99999999999999999999", "a", "", "1.0", " 1", "1 "}) {
    EXPECT_THAT(refusal(kChat, chat_body({{"logit_bias", {{id, 1}}}}))["param"].get<std::string>(),
                HasSubstr("logit_bias"))
        << id;
  }
}

TEST_F(AttackListTest, Row22TemperaturesThatAreNoNumbers) {
  start();
  for (const char* const value :
       {"1e308", "1e309", "-1e308", "NaN", "Infinity", "-Infinity", "\"NaN\"", "-0.1"}) {
    expect_refused(kChat, fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}],
                                          "temperature": {}}})",
                                      value));
  }
}

TEST_F(AttackListTest, Row23AnIdTwice) {
  engine->held = true;
  start();
  HttpClient first = connect();
  first.send_request("POST", "/generate", R"({"text": "a", "rid": "same"})");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  EXPECT_EQ(refusal("/generate", {{"text", "a"}, {"rid", "same"}})["param"], "rid");
  EXPECT_EQ(refusal("/generate", {{"text", {"a", "b"}}, {"rid", {"x", "x"}}})["param"], "rid");
  engine->held = false;
  EXPECT_EQ(first.read_reply().status, 200);
}

TEST_F(AttackListTest, Row24TenThousandStops) {
  start();
  Json stops = Json::array();
  for (int i = 0; i < 10000; ++i) stops.push_back(std::to_string(i));
  EXPECT_EQ(refusal(kChat, chat_body({{"stop", stops}}))["param"], "stop");
  refusal("/generate", {{"text", "a"}, {"sampling_params", {{"stop", stops}}}});
}

TEST_F(AttackListTest, Row25AMegabyteOfOneLetter) {
  start();
  const std::string letters(1 << 20, 'a');
  EXPECT_EQ(refusal(kChat, {{"messages",
                             Json::array({{{"role", "user"}, {"content", letters}}})}})["code"],
            "context_length_exceeded");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", letters}})["code"], "context_length_exceeded");
  EXPECT_EQ(post("/tokenize", {{"prompt", letters}}).json()["count"], 1 << 20);
}

TEST_F(AttackListTest, Row26UnpairedSurrogates) {
  start();
  for (const char* const text :
       {R"(\ud800)", R"(\udc00)", R"(\ud800\ud800)", R"(\ud800a)", "\xed\xa0\x80", "\xff"}) {
    const Reply reply = connect().post_text(
        "/generate", std::string_view(fmt::format(R"({{"text": "{}"}})", text)));
    EXPECT_EQ(reply.status, 400) << text;
    EXPECT_EQ(error_of(reply)["code"], "invalid_json");
  }
  EXPECT_EQ(connect().post_text("/generate", R"({"text": "\ud83d\ude00"})").status, 200);
}

TEST_F(AttackListTest, Row27ArraysAHundredThousandDeep) {
  start();
  for (const char* const path : {kChat, "/v1/completions", "/generate", "/v1/messages",
                                 "/v1/responses", "/api/chat", "/tokenize", "/v1/batches"}) {
    const std::string body = "{\"prompt\": " + repeated("[", 100000) + repeated("]", 100000) + "}";
    const Reply reply = connect().post_text(path, std::string_view(body));
    EXPECT_TRUE(reply.status == 400 || reply.status == 413) << path << reply.status;
    EXPECT_EQ(connect().post_text(path, std::string_view(repeated("{\"a\":", 10000))).status, 400)
        << path;
  }
}

}  // namespace
}  // namespace heddle::server
