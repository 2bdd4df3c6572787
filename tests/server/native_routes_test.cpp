// SPDX-License-Identifier: Apache-2.0
// The smaller routes of SGLang's API: load, weight version, parsers, Vertex AI's wrapper.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class NativeRoutesTest : public ServerTest {
 protected:
  static Json tools() {
    return Json::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
  }
};

TEST_F(NativeRoutesTest, LoadsAreKnownWhileTheModelServes) {
  listen();
  EXPECT_EQ(get("/get_load").status, 503);
  EXPECT_EQ(get("/v1/loads").status, 503);
  serve();
  engine->held = true;
  HttpClient client = connect();
  client.send_request("POST", "/generate", R"({"text": "a", "stream": true})");
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  const Json list = get("/get_load").json();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["dp_rank"], 0);
  EXPECT_EQ(list[0]["num_reqs"], 1);
  EXPECT_EQ(list[0]["num_waiting_reqs"], 0);
  const Json report = get("/v1/loads").json();
  EXPECT_EQ(report["timestamp"], 1700000000);
  EXPECT_EQ(report["dp_rank_count"], 1);
  EXPECT_EQ(report["loads"][0]["num_running_reqs"], 1);
  EXPECT_EQ(report["aggregate"]["total_reqs"], 1);
  engine->held = false;
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(NativeRoutesTest, TheWeightVersionIsShownWithEveryAnswer) {
  options.weight_version = "first";
  start();
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "first");
  EXPECT_EQ(get("/model_info").json()["weight_version"], "first");
  const Reply changed = post("/update_weight_version", {{"new_version", "second"}});
  EXPECT_EQ(changed.status, 200) << changed.body;
  EXPECT_EQ(changed.json()["success"], true);
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "second");
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).json()["metadata"]["weight_version"],
            "second");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}).json()["metadata"]["weight_version"],
            "second");
  EXPECT_EQ(post("/generate", {{"text", "a"}}).json()["meta_info"]["weight_version"], "second");
}

TEST_F(NativeRoutesTest, ANewWeightVersionAbortsRunningRequestsUnlessAskedNotTo) {
  start();
  engine->held = true;
  HttpClient client = connect();
  client.send_request("POST", "/generate", R"({"text": "a"})");
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  EXPECT_EQ(
      post("/update_weight_version", {{"new_version", "b"}, {"abort_all_requests", false}}).status,
      200);
  EXPECT_EQ(engine->num_cancels(), 0);
  EXPECT_EQ(post("/update_weight_version", {{"new_version", "c"}}).status, 200);
  const Json answer = client.read_reply().json();
  EXPECT_EQ(answer["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(answer["meta_info"]["weight_version"], "default") << "it began with that one";
}

TEST_F(NativeRoutesTest, AWeightVersionMustBeAShortName) {
  start();
  for (const Json& body : {Json::object(), Json{{"new_version", ""}}, Json{{"new_version", 7}},
                           Json{{"new_version", std::string(257, 'v')}}}) {
    const Reply reply = post("/update_weight_version", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    EXPECT_EQ(error_of(reply)["param"], "new_version");
  }
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "default");
}

TEST_F(NativeRoutesTest, CallsAreReadFromAText) {
  start();
  const Reply reply =
      post("/parse_function_call",
           {{"text",
             "Well. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
             "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"},
            {"tools", tools()},
            {"tool_call_parser", "qwen25"}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json answer = reply.json();
  EXPECT_THAT(answer["normal_text"].get<std::string>(), HasSubstr("Well."));
  ASSERT_EQ(answer["calls"].size(), 2u);
  EXPECT_EQ(answer["calls"][0]["tool_index"], 0);
  EXPECT_EQ(answer["calls"][1]["tool_index"], 1);
  EXPECT_EQ(answer["calls"][0]["name"], "f");
  EXPECT_EQ(Json::parse(answer["calls"][0]["parameters"].get<std::string>()), (Json{{"a", 1}}));
}

TEST_F(NativeRoutesTest, WithoutAParserTheServersOwnReadsCalls) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(
      post("/parse_function_call", {{"text", text}, {"tools", tools()}}).json()["calls"][0]["name"],
      "f");
  const Json none = post("/parse_function_call",
                         {{"text", text}, {"tools", tools()}, {"tool_call_parser", "none"}})
                        .json();
  EXPECT_EQ(none["normal_text"], text);
  EXPECT_TRUE(none["calls"].empty());
}

TEST_F(NativeRoutesTest, ACutCallStaysText) {
  start();
  const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ";
  const Json answer = post("/parse_function_call",
                           {{"text", text}, {"tools", tools()}, {"tool_call_parser", "qwen"}})
                          .json();
  EXPECT_EQ(answer["normal_text"], text);
  EXPECT_TRUE(answer["calls"].empty());
}

TEST_F(NativeRoutesTest, ReasoningIsSeparatedFromAText) {
  start();
  const auto separate = [this](const char* text, const char* parser) {
    return post("/separate_reasoning", {{"text", text}, {"reasoning_parser", parser}}).json();
  };
  const Json answer = separate("<think>Hm</think>Hi", "qwen3");
  EXPECT_EQ(answer["reasoning_text"], "Hm");
  EXPECT_EQ(answer["text"], "Hi");
  const Json from_start = separate("Hm</think>Hi", "deepseek-r1");
  EXPECT_EQ(from_start["reasoning_text"], "Hm");
  EXPECT_EQ(from_start["text"], "Hi");
  const Json plain = separate("<think>Hm</think>Hi", "none");
  EXPECT_EQ(plain["reasoning_text"], "");
  EXPECT_EQ(plain["text"], "<think>Hm</think>Hi");
}

TEST_F(NativeRoutesTest, ParsersThatThereAreNotAreNamed) {
  start();
  const Reply calls = post("/parse_function_call",
                           {{"text", "a"}, {"tools", tools()}, {"tool_call_parser", "nonsense"}});
  EXPECT_EQ(calls.status, 400);
  EXPECT_EQ(error_of(calls)["param"], "tool_call_parser");
  EXPECT_THAT(error_of(calls)["message"].get<std::string>(), HasSubstr("qwen"));
  const Reply reasoning =
      post("/separate_reasoning", {{"text", "a"}, {"reasoning_parser", "nonsense"}});
  EXPECT_EQ(reasoning.status, 400);
  EXPECT_EQ(error_of(reasoning)["param"], "reasoning_parser");
  EXPECT_EQ(error_of(post("/separate_reasoning", Json::object()))["param"], "text");
  EXPECT_EQ(error_of(post("/parse_function_call", {{"text", "a"}}))["param"], "tools");
}

TEST_F(NativeRoutesTest, VertexAsksForABatchAndGetsPredictions) {
  start();
  const Reply reply =
      post("/vertex_generate", {{"instances", Json::array({{{"text", "a"}}, {{"text", "bb"}}})},
                                {"parameters", {{"sampling_params", {{"max_new_tokens", 4}}}}}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json predictions = reply.json()["predictions"];
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0]["text"], "Hello there");
  EXPECT_EQ(predictions[1]["meta_info"]["prompt_tokens"], 2);
  EXPECT_EQ(engine->submitted()[0].stop.max_new_tokens, 4);
  EXPECT_EQ(post("/vertex_generate", {{"instances", Json::array()}}).json()["predictions"],
            Json::array());
}

TEST_F(NativeRoutesTest, VertexRefusesInstancesThatDiffer) {
  start();
  EXPECT_EQ(error_of(post("/vertex_generate", Json::object()))["param"], "instances");
  const Reply mixed = post("/vertex_generate",
                           {{"instances", Json::array({{{"text", "a"}}, {{"input_ids", {1}}}})}});
  EXPECT_EQ(mixed.status, 400);
  EXPECT_EQ(error_of(mixed)["param"], "instances[1].text");
  EXPECT_EQ(post("/vertex_generate", {{"instances", {7}}}).status, 400);
  const Reply media = post("/vertex_generate",
                           {{"instances", Json::array({{{"text", "a"}, {"image_data", "b"}}})}});
  EXPECT_EQ(error_of(media)["code"], "unsupported_parameter");
  EXPECT_EQ(error_of(media)["param"], "instances[0].image_data");
}

}  // namespace
}  // namespace heddle::server
