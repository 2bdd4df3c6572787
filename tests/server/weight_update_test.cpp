// SPDX-License-Identifier: Apache-2.0
// /update_weights_from_disk: its fields, its answers, and the names that other answers show.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPath = "/update_weights_from_disk";

class WeightUpdateTest : public ServerTest {};

TEST_F(WeightUpdateTest, AFolderIsEnough) {
  start();
  const Reply reply = post(kPath, {{"model_path", "folder/new"}, {"load_format", nullptr}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Json answer = reply.json();
  EXPECT_EQ(answer["success"], true);
  EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr("folder/new"));
  EXPECT_EQ(answer["num_paused_requests"], 0);
  ASSERT_EQ(engine->updates().size(), 1u);
  const WeightUpdate update = engine->updates()[0];
  EXPECT_EQ(update.model_dir, "folder/new");
  EXPECT_EQ(update.load_format, LoadFormat::kAuto);
  EXPECT_FALSE(update.abort_all_requests);
  EXPECT_TRUE(update.flush_cache);
  EXPECT_FALSE(update.pause_after);
}

TEST_F(WeightUpdateTest, FieldsReachTheEngine) {
  start();
  const Reply reply = post(kPath, {{"model_path", "new"},
                                   {"load_format", "safetensors"},
                                   {"abort_all_requests", true},
                                   {"weight_version", "v2"},
                                   {"flush_cache", false},
                                   {"is_async", true},
                                   {"keep_pause", true},
                                   {"recapture_cuda_graph", true}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  const WeightUpdate update = engine->updates().at(0);
  EXPECT_EQ(update.load_format, LoadFormat::kSafetensors);
  EXPECT_TRUE(update.abort_all_requests);
  EXPECT_FALSE(update.flush_cache);
  EXPECT_TRUE(update.pause_after);
}

TEST_F(WeightUpdateTest, FactsAndAnswersShowTheNewWeights) {
  options.model_path = "folder/old";
  options.weight_version = "v1";
  start();
  EXPECT_EQ(get("/model_info").json()["model_path"], "folder/old");
  EXPECT_EQ(get("/get_server_info").json()["weight_version"], "v1");
  EXPECT_EQ(post(kPath, {{"model_path", "folder/new"}, {"weight_version", "v2"}}).status, 200);
  EXPECT_EQ(get("/model_info").json()["model_path"], "folder/new");
  EXPECT_EQ(get("/model_info").json()["tokenizer_path"], "folder/old");
  EXPECT_EQ(get("/model_info").json()["weight_version"], "v2");
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "v2");
  const Json info = get("/get_server_info").json();
  EXPECT_EQ(info["model_path"], "folder/new");
  EXPECT_EQ(info["load_format"], "auto");
  EXPECT_EQ(info["weight_version"], "v2");
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).json()["metadata"]["weight_version"], "v2");
  EXPECT_EQ(post(kPath, {{"model_path", "third"}}).status, 200);
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "v2") << "no call named them";
  EXPECT_EQ(get("/v1/models").json()["data"][0]["id"], "m") << "the served name stays";
}

// A call that was read before the update is answered by the weights that draw its tokens.
TEST_F(WeightUpdateTest, AnAnswerShowsTheWeightsThatDrewIt) {
  for (const char* path : {"/generate", "/v1/chat/completions", "/v1/completions"}) {
    SCOPED_TRACE(path);
    if (server != nullptr) {
      server.reset();
      engine_to_be = std::make_unique<FakeEngine>();
      engine = engine_to_be.get();
    }
    start();
    engine->held = true;
    HttpClient client = connect();
    Json body = chat_body();
    body["prompt"] = "a";
    if (path == std::string_view("/generate")) body = {{"text", "a"}};
    client.send_request("POST", path, body.dump());
    ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
    EXPECT_EQ(post(kPath, {{"model_path", "new"}, {"weight_version", "v2"}}).status, 200);
    engine->held = false;
    const Json answer = client.read_reply().json();
    const char* place = path == std::string_view("/generate") ? "meta_info" : "metadata";
    EXPECT_EQ(answer[place]["weight_version"], "v2");
  }
}

TEST_F(WeightUpdateTest, ReportsABadFolderAndChangesNothing) {
  options.model_path = "folder/old";
  start();
  engine->set_update_status(data_loss("model.safetensors is cut"));
  const Reply reply = post(kPath, {{"model_path", "broken"}, {"weight_version", "v2"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json(), (Json{{"success", false},
                                {"message", "model.safetensors is cut"},
                                {"num_paused_requests", 0}}));
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "default");
  EXPECT_EQ(get("/model_info").json()["model_path"], "folder/old");
  engine->set_update_status(unavailable("the engine is shutting down"));
  EXPECT_EQ(post(kPath, {{"model_path", "new"}}).status, 503);
}

TEST_F(WeightUpdateTest, FieldsAreChecked) {
  start();
  const std::pair<Json, const char*> bodies[] = {
      {Json::object(), "model_path"},
      {{{"model_path", ""}}, "model_path"},
      {{{"model_path", 7}}, "model_path"},
      {{{"model_path", std::string("a\0b", 3)}}, "model_path"},
      {{{"model_path", std::string(5000, 'a')}}, "model_path"},
      {{{"model_path", "a\nb"}}, "model_path"},
      {{{"model_path", "a"}, {"load_format", 1}}, "load_format"},
      {{{"model_path", "a"}, {"load_format", "pt"}}, "load_format"},
      {{{"model_path", "a"}, {"abort_all_requests", "yes"}}, "abort_all_requests"},
      {{{"model_path", "a"}, {"flush_cache", 0}}, "flush_cache"},
      {{{"model_path", "a"}, {"keep_pause", 1}}, "keep_pause"},
      {{{"model_path", "a"}, {"is_async", "no"}}, "is_async"},
      {{{"model_path", "a"}, {"recapture_cuda_graph", 1}}, "recapture_cuda_graph"},
      {{{"model_path", "a"}, {"weight_version", ""}}, "weight_version"},
      {{{"model_path", "a"}, {"weight_version", std::string(257, 'v')}}, "weight_version"},
  };
  for (const auto& [body, param] : bodies) {
    const Reply reply = post(kPath, body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    EXPECT_EQ(error_of(reply)["param"], param) << body.dump();
  }
  EXPECT_EQ(connect().post_text(kPath, "{").status, 400);
  EXPECT_EQ(get(kPath).status, 405);
  EXPECT_TRUE(engine->updates().empty());
}

}  // namespace
}  // namespace heddle::server
