// SPDX-License-Identifier: Apache-2.0
// The server and a real engine with the small model: what only both together show.
#include "server/real_engine_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class RealEngineTest : public RealEngineFixture {
 protected:
  void expect_refused(std::string_view path, const Json& body, std::string_view param,
                      std::string_view message) const {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json error = error_of(reply);
    EXPECT_EQ(error["param"], param) << reply.body;
    EXPECT_EQ(error["code"], "invalid_value");
    EXPECT_THAT(error["message"].get<std::string>(), ::testing::StartsWith(std::string(message)));
  }
};

TEST_F(RealEngineTest, RefusalsOfTheEngineNameTheFieldOfTheApi) {
  engine_options.scheduling.reject_priority_when_disabled = true;
  start_real();
  expect_refused("/v1/chat/completions", chat_body({{"priority", 1}}), "priority",
                 "the request has a priority");

  const std::string many = "10 answers at once";
  const Json ten(10, "a");
  expect_refused("/v1/chat/completions", chat_body({{"n", 10}}), "n", many);
  expect_refused("/v1/completions", {{"prompt", "a"}, {"n", 10}}, "n", many);
  expect_refused("/v1/completions", {{"prompt", ten}}, "prompt", many);
  expect_refused("/generate", {{"text", "a"}, {"sampling_params", {{"n", 10}}}},
                 "sampling_params.n", many);
  expect_refused("/generate", {{"text", ten}}, "text", many);
}

TEST_F(RealEngineTest, HealthAndFactsComeFromTheEngine) {
  start_real();
  EXPECT_EQ(get("/health_generate").status, 200);
  const auto counted = [this] {
    return get("/get_server_info").json()["internal_states"][0]["num_output_tokens"] == 1;
  };
  EXPECT_TRUE(eventually(counted)) << "a step is counted after its answers are sent";
  const Json info = get("/get_server_info").json();
  EXPECT_EQ(info["max_total_num_tokens"], 4096);
  const Json& state = info["internal_states"][0];
  EXPECT_EQ(state["memory_usage"]["token_capacity"], 4096);
  EXPECT_GT(state["memory_usage"]["weight"].get<double>(), 0);
}

TEST_F(RealEngineTest, AStopPatternEndsTheTextBeforeItsFirstMatch) {
  start_real();
  const auto body_of = [](const Json& params) {
    Json sampling = {{"temperature", 0}, {"max_new_tokens", 60}, {"ignore_eos", true}};
    sampling.update(params);
    return Json{{"text", "Once upon a time there was"}, {"sampling_params", sampling}};
  };
  const std::string whole = post("/generate", body_of(Json::object())).json()["text"];
  const std::string regex = "[a-z]+( [a-z]+){4}[ .,]";  // ends with the fifth word
  size_t end = 0;
  size_t begin = 0;
  for (int words = 0; end < whole.size() && words < 5; ++end) {
    const char c = whole[end];
    if (c >= 'a' && c <= 'z') continue;
    const bool word_ended = end > begin && whole[end - 1] != ' ';
    if (word_ended && (c == ' ' || words == 4)) {
      ++words;
    } else {
      words = 0;
      begin = end + 1;
    }
  }
  ASSERT_LT(end, whole.size()) << whole;
  ASSERT_GT(begin, 0u) << whole;

  const Json cut = post("/generate", body_of({{"stop_regex", regex}})).json();
  EXPECT_EQ(cut["text"], whole.substr(0, begin));
  EXPECT_EQ(cut["meta_info"]["finish_reason"], (Json{{"type", "stop"}, {"matched", regex}}));
  const Json kept =
      post("/generate", body_of({{"stop_regex", {"@{9}", regex}}, {"no_stop_trim", true}})).json();
  EXPECT_EQ(kept["text"], whole.substr(0, end));
  Json streamed = body_of({{"stop_regex", regex}});
  streamed["stream"] = true;
  std::string last;
  for (const std::string& event : post("/generate", streamed).events()) {
    if (event == "[DONE]") continue;
    const std::string text = Json::parse(event)["text"];
    EXPECT_TRUE(text.starts_with(last) && whole.starts_with(text)) << text;
    last = text;
  }
  EXPECT_EQ(last, whole.substr(0, begin));
}

}  // namespace
}  // namespace heddle::server
