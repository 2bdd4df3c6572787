// SPDX-License-Identifier: Apache-2.0
// The server and a real engine with the small model: what only both together show.
#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_fixture.h"
#include "core/compiler.h"
#include "server/real_engine_fixture.h"
#include "tokenizer/tokenizer.h"

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

// The moment at which a client leaves.
enum class Departure { kDuringUpload, kAfterSending, kAtFirstBytes, kMidway, kAfterTheEnd };
constexpr int kNumDepartures = 5;

// A request, and how its client behaves.
struct Visit {
  std::string path;
  Json body;
  Departure departure = Departure::kAfterTheEnd;
  uint64_t luck = 0;  // says how far it gets, and in which way it leaves
};

class LeavingClientsTest : public RealEngineFixture {
 protected:
  LeavingClientsTest() {
    engine_options.exact = true;  // what runs beside a request does not change its answer
    engine_options.max_running_requests = 8;
    engine_options.max_total_tokens = 1024;     // so few that the cache is evicted from
    engine_options.max_queued_requests = 1024;  // so many that no request is refused
  }

  // Every call with every departure comes equally often.
  static std::vector<Visit> shuffled_visits(int count) {
    std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same order every time
    std::vector<Visit> visits;
    for (int i = 0; i < count; ++i) {
      Visit visit = call_number(i);
      visit.departure = static_cast<Departure>(i / kNumCalls % kNumDepartures);
      visit.luck = random();
      visits.push_back(std::move(visit));
    }
    std::shuffle(visits.begin(), visits.end(), random);
    return visits;
  }

  void make(const Visit& visit) const {
    // The connection is closed behind the answer, so that receive() waits for nothing after it.
    const std::string request =
        HttpClient::request_text("POST", visit.path, visit.body.dump(), "Connection: close\r\n");
    HttpClient client = connect();
    const bool cut = visit.departure == Departure::kDuringUpload;
    client.send(request.substr(0, cut ? visit.luck % request.size() : request.size()));
    if (visit.departure == Departure::kAtFirstBytes) {
      client.receive();
    } else if (visit.departure == Departure::kMidway) {
      for (uint64_t left = 2 + visit.luck % 8; left > 0 && !client.receive().empty(); --left) {
      }
    } else if (visit.departure == Departure::kAfterTheEnd) {
      const Reply reply = client.read_reply();
      EXPECT_EQ(reply.status, 200) << reply.body;
      EXPECT_TRUE(reply.complete);
    }
    client.leave(visit.luck);
  }

  // The answers to calls that are always the same.
  [[nodiscard]] Json steady_answers() const {
    const Reply drawn = post(kChat, chat_body({{"n", 2}, {"seed", 3}, {"max_tokens", 12}}));
    const Reply formed = post("/generate", {{"text", kSentence},
                                            {"sampling_params",
                                             {{"temperature", 0},
                                              {"max_new_tokens", 12},
                                              {"json_schema", Json::parse(kDocumentSchema)}}}});
    const Reply streamed =
        post("/v1/completions",
             {{"prompt", kSentence}, {"temperature", 0}, {"max_tokens", 12}, {"stream", true}});
    std::string text;
    for (const std::string& event : streamed.events()) {
      if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"];
    }
    return Json::array({drawn.json()["choices"], formed.json()["text"], text});
  }

  // The pools of the engine: held for requests, and in its cache.
  [[nodiscard]] Json holdings() const {
    const Json info = get("/get_server_info").json()["internal_states"][0];
    Json seen = get("/inspect").json();
    for (Json& pool : seen["pools"]) pool.erase("evicted");
    return {{"num_running", info["num_running_reqs"]},
            {"num_waiting", info["num_waiting_reqs"]},
            {"num_used_tokens", info["num_used_tokens"]},
            {"num_used_states", info["num_used_states"]},
            {"num_requests", seen["num_requests"]},
            {"pools", seen["pools"]},
            {"tree", seen["tree"]}};
  }

 private:
  static constexpr int kNumCalls = 24;
  static constexpr const char* kSentence = "The quick brown fox jumps over the lazy dog. ";
  static constexpr const char* kDocumentSchema = R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
      "required": ["name", "age"], "additionalProperties": false})";

  // One of three routes, streamed or not, with one answer or two, of a form or of none. The prompts
  // are beginnings of each other.
  static Visit call_number(int number) {
    std::string prompt;
    for (int i = 0; i <= number % 7; ++i) prompt += kSentence;
    const bool is_native = number % 3 == 2;
    Json params = {{"n", 1 + number / 6 % 2},
                   {"temperature", 0.8},
                   {is_native ? "max_new_tokens" : "max_tokens", 12}};
    if (number / 12 % 2 == 0) params["json_schema"] = Json::parse(kDocumentSchema);
    const bool stream = number / 3 % 2 == 0;
    if (is_native) {
      return {.path = "/generate",
              .body = {{"text", prompt}, {"stream", stream}, {"sampling_params", params}}};
    }
    params["stream"] = stream;
    if (number % 3 == 0) {
      params["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
      return {.path = kChat, .body = params};
    }
    params["prompt"] = prompt;
    return {.path = "/v1/completions", .body = params};
  }
};

TEST_F(LeavingClientsTest, NothingIsLeftOfAThousandAndOthersGetTheSameAnswersAsEver) {
  constexpr int kNumVisits = HEDDLE_SANITIZED ? 120 : 1000;
  constexpr int kNumClients = 4;
  start_real();
  const Json at_start = holdings();
  for (const char* const name :
       {"num_running", "num_waiting", "num_used_tokens", "num_used_states"}) {
    EXPECT_EQ(at_start[name], 0) << name;
  }
  EXPECT_EQ(at_start["tree"]["num_nodes"], 0);
  const Json expected = steady_answers();

  const std::vector<Visit> visits = shuffled_visits(kNumVisits);
  std::atomic<size_t> num_begun = 0;
  std::vector<std::jthread> clients;
  for (int i = 0; i < kNumClients; ++i) {
    clients.emplace_back([&] {
      for (size_t next; (next = num_begun++) < visits.size();) make(visits[next]);
    });
  }
  do {
    EXPECT_EQ(steady_answers(), expected);
  } while (num_begun < visits.size());
  clients.clear();

  // A request whose client has left may be read by the server after all others have ended.
  Json now;
  EXPECT_TRUE(eventually([&] {
    if (post("/flush_cache?timeout=60", Json::object()).status != 200) return false;
    now = holdings();
    return now == at_start;
  })) << now
      << "\nat the start:\n"
      << at_start;
  EXPECT_EQ(steady_answers(), expected) << "computed from the first token";
}

// A model without a template, and with one that cannot be read.
TEST(ModelCodecTest, WarnsAtTheStartWhereChatsWillBeRefused) {
  const auto tokenizer =
      tokenizer::load_tokenizer(::heddle::testing::repository_path("models/heddle-tiny"));
  ASSERT_TRUE(tokenizer.ok());
  for (const auto& [config, wanted] :
       {std::pair{"{}", "the model has no chat template"},
        std::pair{R"({"chat_template": "{% if %}"})", "chat_template"},
        std::pair{R"({"chat_template": ""})", "the model has no chat template"}}) {
    SCOPED_TRACE(config);
    const checkpoint::testing::TemporaryFolder folder;
    folder.write("tokenizer_config.json", config);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(make_model_codec(folder.path(), **tokenizer, {}).ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::AllOf(HasSubstr("Chats will be refused, completions are served: "),
                                 HasSubstr(wanted)));
  }
}

}  // namespace
}  // namespace heddle::server
