// SPDX-License-Identifier: Apache-2.0
// LoRA adapters by name: routes that load and unload them, and requests that name them.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class AdaptersTest : public ServerTest {
 protected:
  void start_with(int32_t num_slots) {
    engine->mutable_options().adapters.num_slots = num_slots;
    start();
  }

  [[nodiscard]] Reply load(const Json& body) const { return post("/load_lora_adapter", body); }

  // The content of the adapter that a request with this body gets; "" for none.
  [[nodiscard]] std::string adapter_of(std::string_view path, const Json& body) const {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    const auto adapter = engine->submitted().back().adapter;
    return adapter == nullptr ? "" : adapter->content_hash;
  }
};

TEST_F(AdaptersTest, RequestsNameALoadedAdapter) {
  start_with(2);
  EXPECT_EQ(load({{"lora_name", "a"}, {"lora_path", "folder"}}).json()["loaded_adapters"],
            Json({{"a", "folder"}}));
  EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", "b"}, {"lora_path", "other"}}).status,
            200);
  for (const char* model : {"a", "m:a"}) {
    EXPECT_EQ(adapter_of(kChat, chat_body({{"model", model}})), "folder") << model;
    EXPECT_EQ(adapter_of("/v1/completions", {{"prompt", "p"}, {"model", model}}), "folder");
    EXPECT_EQ(adapter_of("/generate", {{"text", "p"}, {"model", model}}), "folder");
    EXPECT_EQ(post(kChat, chat_body({{"model", model}})).json()["model"], model);
  }
  EXPECT_EQ(adapter_of("/generate", {{"text", "p"}, {"lora_path", "b"}}), "other");
  EXPECT_EQ(adapter_of("/generate", {{"text", "p"}}), "");
  EXPECT_EQ(adapter_of(kChat, chat_body({{"lora_path", nullptr}})), "");
  EXPECT_EQ(adapter_of("/v1/messages",
                       {{"model", "b"}, {"max_tokens", 3}, {"messages", chat_body()["messages"]}}),
            "other");
  EXPECT_EQ(adapter_of("/api/chat",
                       {{"model", "a"}, {"stream", false}, {"messages", chat_body()["messages"]}}),
            "folder");
  EXPECT_EQ(adapter_of("/v1/responses", {{"model", "a"}, {"input", "Hi"}}), "folder");
  ASSERT_EQ(post("/generate", {{"text", {"p", "q"}}, {"lora_path", {"a", "b"}}}).status, 200);
  const std::vector<Request> both = engine->submitted();
  EXPECT_EQ(both[both.size() - 2].adapter->content_hash, "folder");
  EXPECT_EQ(both.back().adapter->content_hash, "other");
}

TEST_F(AdaptersTest, ServedNamesMayHaveColons) {
  options.served_model_names = {"m", "m:8b"};
  start_with(2);
  for (const char* name : {"8b", "fox"}) {
    ASSERT_EQ(load({{"lora_name", name}, {"lora_path", name}}).status, 200);
  }
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "m:8b"}})), "") << "a name of the model";
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "m:8b:fox"}})), "fox");
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "m:fox"}})), "fox");
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "8b"}})), "8b");
}

TEST_F(AdaptersTest, ModelsListsThemWithTheirParent) {
  start_with(2);
  ASSERT_EQ(load({{"lora_name", "a"}, {"lora_path", "folder"}}).status, 200);
  const Json models = get("/v1/models").json()["data"];
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0]["parent"], nullptr);
  EXPECT_EQ(models[1]["id"], "a");
  EXPECT_EQ(models[1]["parent"], "m");
  EXPECT_EQ(models[1]["root"], "folder");
  EXPECT_EQ(get("/v1/models/a").json()["parent"], "m");
}

TEST_F(AdaptersTest, AReloadReplacesAndAnUnloadForgets) {
  start_with(2);
  ASSERT_EQ(load({{"lora_name", "a"}, {"lora_path", "folder"}}).status, 200);
  EXPECT_THAT(error_of(load({{"lora_name", "a"}, {"lora_path", "new"}}))["message"],
              HasSubstr("loaded already"));
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "a"}})), "folder");
  ASSERT_EQ(load({{"lora_name", "a"}, {"lora_path", "new"}, {"load_inplace", true}}).status, 200);
  EXPECT_EQ(adapter_of(kChat, chat_body({{"model", "a"}})), "new");
  EXPECT_EQ(post("/unload_lora_adapter", {{"lora_name", "a"}}).status, 200);
  EXPECT_EQ(post("/unload_lora_adapter", {{"lora_name", "a"}}).status, 404);
  EXPECT_EQ(post(kChat, chat_body({{"model", "a"}})).status, 404) << "not the model as it is";
  EXPECT_EQ(get("/v1/models").json()["data"].size(), 1u);
}

TEST_F(AdaptersTest, WrongNamesAndFoldersAreRefused) {
  start_with(2);
  ASSERT_EQ(load({{"lora_name", "a"}, {"lora_path", "folder"}}).status, 200);
  ASSERT_EQ(load({{"lora_name", "b"}, {"lora_path", "other"}}).status, 200);
  const std::tuple<Json, const char*, const char*> wrong[] = {
      {{{"lora_path", "p"}}, "lora_name", "lora_name"},
      {{{"lora_name", "x"}}, "lora_path", "lora_path"},
      {{{"lora_name", "../x"}, {"lora_path", "p"}}, "lora_name", "no name for an adapter"},
      {{{"lora_name", "x:y"}, {"lora_path", "p"}}, "lora_name", "no name for an adapter"},
      {{{"lora_name", "m"}, {"lora_path", "p"}}, "lora_name", "the name of the model"},
      {{{"lora_name", "default"}, {"lora_path", "p"}}, "lora_name", "names the model itself"},
      {{{"lora_name", "latest"}, {"lora_path", "p"}}, "lora_name", "names the model itself"},
      {{{"lora_name", "x"}, {"lora_path", "missing"}}, "lora_path", "adapter_config.json"},
      {{{"lora_name", "x"}, {"lora_path", "a\nb"}}, "lora_path", "control characters"},
  };
  for (const auto& [body, param, text] : wrong) {
    const Reply reply = load(body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(error_of(reply)["param"], param) << body;
    EXPECT_THAT(error_of(reply)["message"], HasSubstr(text)) << body;
  }
  EXPECT_EQ(post(kChat, chat_body({{"model", "m:x"}})).status, 404);
  EXPECT_EQ(post(kChat, chat_body({{"lora_path", "x"}})).status, 404);
  EXPECT_EQ(post(kChat, chat_body({{"model", "a"}, {"lora_path", "b"}})).status, 400);
}

TEST_F(AdaptersTest, ServersWithoutAdaptersSayHowToStart) {
  start_with(0);
  EXPECT_THAT(error_of(load({{"lora_name", "a"}, {"lora_path", "p"}}))["message"],
              HasSubstr("--enable-lora"));
  EXPECT_THAT(error_of(post(kChat, chat_body({{"lora_path", "a"}})))["message"],
              HasSubstr("--enable-lora"));
  EXPECT_EQ(post(kChat, chat_body({{"model", "a"}})).status, 200) << "any name is the model's";
}

TEST_F(AdaptersTest, KeysMayUseTheAdaptersThatTheyName) {
  options.admin_api_key = "admin";
  options.api_keys = {{.secret = "user", .name = "one", .models = {"m", "a"}}};
  start_with(2);
  const auto call = [this](const char* key, const char* path, const Json& body) {
    return connect().call("POST", path, body.dump(), fmt::format("x-api-key: {}\r\n", key));
  };
  for (const char* name : {"a", "b"}) {
    const Json body = {{"lora_name", name}, {"lora_path", name}};
    EXPECT_EQ(call("user", "/load_lora_adapter", body).status, 403);
    EXPECT_EQ(call("admin", "/load_lora_adapter", body).status, 200);
  }
  EXPECT_EQ(call("user", kChat, chat_body({{"model", "a"}})).status, 200);
  EXPECT_EQ(call("user", kChat, chat_body({{"model", "b"}})).status, 404);
  EXPECT_EQ(call("user", kChat, chat_body({{"model", "a"}, {"lora_path", "b"}})).status, 404);
}

}  // namespace
}  // namespace heddle::server
