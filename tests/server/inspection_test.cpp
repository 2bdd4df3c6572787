// SPDX-License-Identifier: Apache-2.0
// GET, POST /inspect: what it shows, to whom, and its limits.
#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Inspection some_inspection() {
  Inspection seen;
  seen.num_requests = 3;
  seen.requests.push_back({.id = "r1",
                           .phase = RequestPhase::kDecode,
                           .priority = 7,
                           .tenant = "alice\n",
                           .prompt_tokens = 20,
                           .computed_tokens = 23,
                           .cached_tokens = 16,
                           .output_tokens = 4,
                           .max_new_tokens = 50,
                           .num_returns = 1,
                           .age_seconds = 1.5});
  seen.requests.push_back({.id = "r2"});
  seen.page_size = 16;
  seen.kv_pages = {.total = 100, .requests = 10, .shared = 20, .cached = 30, .bytes_each = 64};
  seen.tree.needs_state = true;
  seen.tree.num_nodes = 2;
  seen.tree.nodes.push_back(
      {.id = 4, .num_tokens = 3, .tokens = {'a', 'b', 'c'}, .num_children = 1, .locks = 1});
  seen.tree.nodes.push_back({.id = 5, .parent = 4, .begin = 3, .num_tokens = 9, .has_state = true});
  seen.reuse =
      PromptReuse{.prompt_tokens = 8, .matched_tokens = 6, .reused_tokens = 3, .path = {4, 5}};
  return seen;
}

class InspectionTest : public ServerTest {
 protected:
  [[nodiscard]] Reply ask(const Json& body, std::string_view headers = {}) const {
    return connect().call("POST", "/inspect", body.dump(), headers);
  }
};

TEST_F(InspectionTest, ShowsRequestsPoolsTreeAndReuse) {
  engine->set_inspection(some_inspection());
  start();
  const Reply reply = get("/inspect");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json seen = reply.json();
  EXPECT_EQ(seen["num_requests"], 3);
  EXPECT_EQ(seen["requests"][0]["rid"], "r1");
  EXPECT_EQ(seen["requests"][0]["phase"], "decode");
  EXPECT_EQ(seen["requests"][0]["priority"], 7);
  EXPECT_EQ(seen["requests"][0]["tenant"], "alice?");
  EXPECT_EQ(seen["requests"][0]["cached_tokens"], 16);
  EXPECT_EQ(seen["requests"][1]["phase"], "waiting");
  EXPECT_TRUE(seen["requests"][1]["priority"].is_null());
  EXPECT_EQ(seen["pools"]["kv_pages"]["free"], 40);
  EXPECT_EQ(seen["page_size"], 16);
  const Json& nodes = seen["tree"]["nodes"];
  EXPECT_EQ(nodes[0]["token_ids"], Json({'a', 'b', 'c'}));
  EXPECT_EQ(nodes[0]["text"], "abc");
  EXPECT_EQ(nodes[1]["parent"], 4);
  EXPECT_EQ(nodes[1]["has_state"], true);
  EXPECT_EQ(seen["reuse"]["reused_tokens"], 3);
  EXPECT_EQ(seen["reuse"]["path"], Json({4, 5}));
  EXPECT_EQ(engine->inspected().max_requests, 100);
  EXPECT_EQ(engine->inspected().max_nodes, 500);
}

TEST_F(InspectionTest, FieldsReachTheEngineWithinTheirLimits) {
  start();
  ASSERT_EQ(ask({{"max_requests", 1000},
                 {"max_nodes", 2000},
                 {"max_node_tokens", 64},
                 {"prompt_token_ids", {1, 2, 3}},
                 {"cache_salt", "s"}})
                .status,
            200);
  const InspectionOptions asked = engine->inspected();
  EXPECT_EQ(asked.max_requests, 1000);
  EXPECT_EQ(asked.max_nodes, 2000);
  EXPECT_EQ(asked.max_node_tokens, 64);
  EXPECT_THAT(asked.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(asked.cache_namespace, "1:s");
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, Json>>{{"max_requests", 1001},
                                                 {"max_requests", -1},
                                                 {"max_nodes", 2001},
                                                 {"max_node_tokens", 65},
                                                 {"prompt_token_ids", {1, 200000}},
                                                 {"prompt_token_ids", "text"}}) {
    const Reply reply = ask({{field, value}});
    EXPECT_EQ(reply.status, 400) << field;
    EXPECT_EQ(error_of(reply)["param"], field);
  }
  EXPECT_EQ(connect().call("POST", "/inspect", "[1]").status, 400);
  EXPECT_EQ(connect().call("POST", "/inspect", std::string(70000, ' ')).status, 413);
}

TEST_F(InspectionTest, TakesTheAdminKeyWhereThereIsOne) {
  options.api_key = "user";
  options.admin_api_key = "admin";
  start();
  EXPECT_EQ(ask(Json::object()).status, 401);
  EXPECT_EQ(ask(Json::object(), "Authorization: Bearer user\r\n").status, 403);
  EXPECT_EQ(ask(Json::object(), "Authorization: Bearer admin\r\n").status, 200);
}

TEST_F(InspectionTest, PagesOfOtherOriginsDoNotSeeWhatOthersSent) {
  start();
  EXPECT_EQ(ask(Json::object(), "Origin: http://example.com\r\n").status, 403);
  EXPECT_EQ(connect().call("GET", "/inspect", {}, "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(ask(Json::object(), "Sec-Fetch-Site: same-origin\r\n").status, 200);
}

TEST_F(InspectionTest, RefusalsOfTheEngineAreAnswers) {
  start();
  engine->set_control_refusal(
      resource_exhausted("control_queue_full: 16 inspections wait already"));
  const Reply full = get("/inspect");
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(error_of(full)["code"], "control_queue_full");
}

TEST_F(InspectionTest, AServerThatLoadsHasNothingToShowYet) {
  listen();
  const Reply reply = get("/inspect");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_of(reply)["code"], "loading");
  serve();
}

TEST_F(InspectionTest, ARealEngineShowsTheTreeOfItsAnswers) {
  listen();
  const EngineOptions small{.model_dir = testing::repository_path("models/heddle-tiny"),
                            .num_threads = 1,
                            .max_running_requests = 2,
                            .max_total_tokens = 4096};
  auto created = Engine::create(small);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  auto codec = make_model_codec(small.model_dir, *(*created)->tokenizer(), {});
  ASSERT_TRUE(codec.ok()) << codec.status().to_string();
  server->start_serving(std::move(created).value(), std::move(codec).value(), Json::object());

  const Json question = chat_body({{"max_tokens", 4}});
  ASSERT_EQ(post("/v1/chat/completions", question).status, 200);
  const Json tokens = post("/tokenize", {{"messages", question["messages"]}}).json()["tokens"];
  const Json seen = ask({{"prompt_token_ids", tokens}}).json();
  EXPECT_EQ(seen["num_requests"], 0);
  EXPECT_GT(seen["tree"]["num_nodes"], 0);
  EXPECT_THAT(seen["tree"]["nodes"][0]["text"].get<std::string>(), HasSubstr("Hi"));
  EXPECT_EQ(seen["reuse"]["matched_tokens"], tokens.size());
  EXPECT_GT(seen["pools"]["kv_pages"]["cached"], 0);
  EXPECT_EQ(seen["pools"]["kv_pages"]["requests"], 0);
}

}  // namespace
}  // namespace heddle::server
