// SPDX-License-Identifier: Apache-2.0
// Sessions: conversations over /generate of which the server keeps the tokens.
#include "server/api/native/session_store.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class SessionsTest : public ServerTest {
 protected:
  std::string open(const Json& body = {{"capacity_of_str_len", 10000}}) const {
    const Reply reply = post("/open_session", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json().get<std::string>();
  }

  // A turn of the text, whose answer is "Hello there" as three tokens.
  Reply say(const std::string& session, const std::string& text, const std::string& rid,
            Json params = Json::object(), const Json& extra = Json::object()) const {
    params["id"] = session;
    Json body = {{"text", text}, {"rid", rid}, {"session_params", params}};
    body.update(extra);
    return post("/generate", body);
  }

  // The prompt that the engine got last. FakeCodec's tokens are bytes; answers are shown as their
  // ids.
  [[nodiscard]] std::string prompt() const {
    const std::vector<TokenId> tokens = engine->submitted().back().prompt;
    std::string text;
    for (const TokenId token : tokens) {
      text += token >= ' ' && token < 127 ? std::string(1, static_cast<char>(token))
                                          : fmt::format("<{}>", token);
    }
    return text;
  }

  // The fields at fault of a 400.
  [[nodiscard]] std::string fault(const Reply& reply) const {
    EXPECT_EQ(reply.status, 400) << reply.body;
    return error_of(reply).value("param", "");
  }
};

TEST_F(SessionsTest, ATurnGoesOnFromAnother) {
  start();
  const std::string session = open();
  ASSERT_EQ(say(session, "one", "r1").status, 200);
  EXPECT_EQ(prompt(), "one");
  ASSERT_EQ(say(session, "two", "r2", {{"rid", "r1"}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2><151645>two");
  ASSERT_EQ(say(session, "three", "r3", {{"rid", "r2"}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2><151645>two<1><2><151645>three");
  ASSERT_EQ(say(session, "other", "r4", {{"rid", "r1"}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2><151645>other") << "two may go on from one";
  ASSERT_EQ(say(session, "new", "r5").status, 200);
  EXPECT_EQ(prompt(), "new");
}

TEST_F(SessionsTest, OffsetAndDroppedOutputShortenWhatComesBefore) {
  start();
  const std::string session = open();
  ASSERT_EQ(say(session, "one", "r1").status, 200);
  ASSERT_EQ(say(session, "two", "r2", {{"rid", "r1"}, {"offset", 2}}).status, 200);
  EXPECT_EQ(prompt(), "ontwo");
  ASSERT_EQ(say(session, "two", "r3", {{"rid", "r1"}, {"offset", -1}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2>two") << "without the end token";
  ASSERT_EQ(say(session, "two", "r4", {{"rid", "r1"}, {"offset", -100}}).status, 200);
  EXPECT_EQ(prompt(), "two");
  ASSERT_EQ(say(session, "two", "r5", {{"rid", "r1"}, {"drop_previous_output", true}}).status, 200);
  EXPECT_EQ(prompt(), "onetwo");
}

TEST_F(SessionsTest, ReplacingForgetsWhatCameAfter) {
  start();
  const std::string session = open();
  ASSERT_EQ(say(session, "one", "r1").status, 200);
  ASSERT_EQ(say(session, "two", "r2", {{"rid", "r1"}}).status, 200);
  ASSERT_EQ(say(session, "three", "r3", {{"rid", "r2"}}).status, 200);
  ASSERT_EQ(say(session, "again", "r4", {{"rid", "r1"}, {"replace", true}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2><151645>again");
  EXPECT_EQ(fault(say(session, "x", "r5", {{"rid", "r2"}})), "session_params.rid");
  EXPECT_EQ(fault(say(session, "x", "r5", {{"rid", "r3"}})), "session_params.rid");
  ASSERT_EQ(say(session, "start", "r6", {{"replace", true}}).status, 200);
  EXPECT_EQ(fault(say(session, "x", "r7", {{"rid", "r1"}})), "session_params.rid");
  EXPECT_EQ(say(session, "x", "r7", {{"rid", "r6"}}).status, 200);
}

TEST_F(SessionsTest, ATurnIsKeptOnceItIsAnsweredWhole) {
  engine->held = true;
  start();
  const std::string session = open();
  HttpClient client = connect();
  const Json body = {{"text", "one"}, {"rid", "r1"}, {"session_params", {{"id", session}}}};
  client.send_request("POST", "/generate", body.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  const Reply early = say(session, "two", "r2", {{"rid", "r1"}});
  EXPECT_EQ(fault(early), "session_params.rid");
  EXPECT_THAT(early.body, HasSubstr("still being answered"));
  client.close();
  // A turn whose client left is as if it had not been: its id can be used again.
  EXPECT_TRUE(eventually([&] {
    return error_of(say(session, "two", "r2", {{"rid", "r1"}}))["message"].get<std::string>().find(
               "has no turn") != std::string::npos;
  }));
  engine->held = false;
  EXPECT_EQ(say(session, "one", "r1b").status, 200);
  EXPECT_EQ(say(session, "two", "r2", {{"rid", "r1b"}}).status, 200);
}

TEST_F(SessionsTest, StreamsAreTurnsToo) {
  start();
  const std::string session = open();
  const Reply reply = say(session, "one", "r1", Json::object(), {{"stream", true}});
  ASSERT_EQ(reply.events().back(), "[DONE]");
  ASSERT_EQ(say(session, "two", "r2", {{"rid", "r1"}}).status, 200);
  EXPECT_EQ(prompt(), "one<1><2><151645>two");
}

TEST_F(SessionsTest, FieldsAreChecked) {
  start();
  EXPECT_EQ(fault(post("/open_session", Json::object())), "capacity_of_str_len");
  EXPECT_EQ(fault(post("/open_session", {{"capacity_of_str_len", 0}})), "capacity_of_str_len");
  EXPECT_EQ(fault(post("/open_session", {{"capacity_of_str_len", 9}, {"timeout", 0}})), "timeout");
  EXPECT_EQ(fault(post("/open_session", {{"capacity_of_str_len", 9}, {"session_id", "a b"}})),
            "session_id");
  EXPECT_EQ(open({{"capacity_of_str_len", 9}, {"session_id", "mine"}}), "mine");
  EXPECT_EQ(fault(post("/open_session", {{"capacity_of_str_len", 9}, {"session_id", "mine"}})),
            "session_id");
  EXPECT_EQ(fault(say("other", "a", "r1")), "session_params.id");
  EXPECT_EQ(fault(say("mine", "a", "r1", {{"rid", 7}})), "session_params.rid");
  EXPECT_EQ(fault(say("mine", "a", "r1", {{"rid", "none"}})), "session_params.rid");
  EXPECT_EQ(fault(post("/generate", {{"text", "a"}, {"session_params", "mine"}})),
            "session_params");
  EXPECT_EQ(fault(post("/generate", {{"text", "a"}, {"session_params", Json::object()}})),
            "session_params.id");
  EXPECT_EQ(fault(post("/generate", {{"text", {"a", "b"}}, {"session_params", {{"id", "mine"}}}})),
            "session_params");
  EXPECT_EQ(fault(say("mine", "a", "r1", Json::object(), {{"sampling_params", {{"n", 2}}}})),
            "session_params");
  for (const auto& [path, body] :
       {std::pair<const char*, Json>("/v1/chat/completions", chat_body()),
        {"/v1/completions", {{"prompt", "a"}}}}) {
    Json with_session = body;
    with_session["session_params"] = {{"id", "mine"}};
    const Reply elsewhere = post(path, with_session);
    EXPECT_EQ(fault(elsewhere), "session_params");
    EXPECT_THAT(elsewhere.body, HasSubstr("/generate has sessions"));
  }
  EXPECT_EQ(say("mine", "a", "r1").status, 200);
  EXPECT_EQ(fault(say("mine", "a", "r1")), "rid") << "ids name turns";
  const Reply full = say("mine", "123456789", "r2", {{"rid", "r1"}});
  EXPECT_EQ(fault(full), "session_params.id");
  EXPECT_THAT(full.body, HasSubstr("13 tokens"));
}

TEST_F(SessionsTest, AClosedSessionIsGone) {
  start();
  const std::string session = open();
  ASSERT_EQ(say(session, "one", "r1").status, 200);
  EXPECT_EQ(post("/close_session", {{"session_id", session}}).status, 200);
  EXPECT_EQ(fault(say(session, "two", "r2", {{"rid", "r1"}})), "session_params.id");
  EXPECT_EQ(post("/close_session", {{"session_id", session}}).status, 404);
  EXPECT_EQ(fault(post("/close_session", Json::object())), "session_id");
}

TEST_F(SessionsTest, AnUnusedSessionIsClosedAfterItsTime) {
  auto now = std::make_shared<std::atomic<int64_t>>(1000);
  options.unix_time = [now] { return now->load(); };
  start();
  const std::string session = open({{"capacity_of_str_len", 100}, {"timeout", 10}});
  *now = 1010;
  EXPECT_EQ(say(session, "one", "r1").status, 200);
  *now = 1020;
  EXPECT_EQ(say(session, "two", "r2", {{"rid", "r1"}}).status, 200) << "used ten seconds ago";
  *now = 1031;
  EXPECT_EQ(fault(say(session, "three", "r3", {{"rid", "r2"}})), "session_params.id");
}

TEST(SessionStoreTest, SessionsAreTheirHolders) {
  const auto store = std::make_shared<SessionStore>();
  ASSERT_FALSE(
      store->open({.id = "s", .holder = "a", .capacity_tokens = 9, .timeout_seconds = 9}, 0));
  std::vector<TokenId> prompt = {1};
  EXPECT_FALSE(store->extend({.id = "s"}, "a", {}, 0, prompt));
  EXPECT_TRUE(store->extend({.id = "s"}, "b", {}, 0, prompt));
  EXPECT_FALSE(store->close("s", "b"));
  EXPECT_FALSE(
      store->open({.id = "s", .holder = "b", .capacity_tokens = 9, .timeout_seconds = 9}, 0))
      << "which would show that another holder has one of this name";
  EXPECT_TRUE(
      store->open({.id = "s", .holder = "b", .capacity_tokens = 9, .timeout_seconds = 9}, 0));
  EXPECT_TRUE(store->close("s", "a"));
  EXPECT_FALSE(store->extend({.id = "s"}, "b", {}, 0, prompt));
}

TEST(SessionStoreTest, AHolderFillsItsShareAndNoMore) {
  const auto store = std::make_shared<SessionStore>(0.25);
  const auto open = [&store](const std::string& id, const std::string& holder) {
    return store->open(
        {.id = id, .holder = holder, .capacity_tokens = 1 << 24, .timeout_seconds = 9}, 0);
  };
  for (size_t i = 0; i < SessionStore::kMaxSessions / 4; ++i) {
    ASSERT_FALSE(open(std::to_string(i), "a"));
  }
  const auto refused = open("more", "a");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  ASSERT_FALSE(open("0", "b"));

  // Two sessions fill a's share of bytes; the third closes the one that was used first.
  const std::vector<TokenId> large(SessionStore::kMaxSessionBytes / sizeof(TokenId) - 1000);
  const auto say = [&store, &large](const std::string& id, const std::string& holder, int64_t now) {
    std::unique_ptr<SessionTurn> turn;
    EXPECT_FALSE(store->begin({.id = id}, holder, "r", large, now, turn));
    RequestEvent last;
    last.finish.emplace();
    if (turn != nullptr) turn->add(last);
  };
  say("0", "b", 1);
  for (int64_t i = 0; i < 3; ++i) say(std::to_string(i), "a", 2 + i);
  std::vector<TokenId> prompt = {1};
  EXPECT_TRUE(store->extend({.id = "0", .rid = "r"}, "a", {}, 5, prompt));
  EXPECT_FALSE(store->extend({.id = "1", .rid = "r"}, "a", {}, 5, prompt));
  prompt = {1};
  EXPECT_FALSE(store->extend({.id = "0", .rid = "r"}, "b", {}, 5, prompt)) << "others lose nothing";
}

TEST(SessionStoreTest, ThePromptsFirstTokenGoesWhereItIsOneThatBeginsTexts) {
  const auto store = std::make_shared<SessionStore>();
  ASSERT_FALSE(store->open({.id = "s", .capacity_tokens = 99, .timeout_seconds = 9}, 0));
  std::vector<TokenId> prompt = {7, 1};
  ASSERT_FALSE(store->extend({.id = "s"}, "", TokenId{7}, 0, prompt));
  EXPECT_EQ(prompt, (std::vector<TokenId>{7, 1})) << "nothing comes before";
  std::unique_ptr<SessionTurn> turn;
  ASSERT_FALSE(store->begin({.id = "s"}, "", "r", prompt, 0, turn));
  RequestEvent last;
  last.tokens = {2};
  last.finish.emplace();
  turn->add(last);
  prompt = {7, 3};
  ASSERT_FALSE(store->extend({.id = "s", .rid = "r"}, "", TokenId{7}, 0, prompt));
  EXPECT_EQ(prompt, (std::vector<TokenId>{7, 1, 2, 3}));
}

TEST(SessionStoreTest, SessionsAndTheirTokensAreBounded) {
  const auto store = std::make_shared<SessionStore>();
  for (size_t i = 0; i < SessionStore::kMaxSessions; ++i) {
    ASSERT_FALSE(store->open(
        {.id = std::to_string(i), .capacity_tokens = 1 << 24, .timeout_seconds = 9}, 0));
  }
  const auto refused = store->open({.id = "more", .capacity_tokens = 1, .timeout_seconds = 9}, 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);

  // Eight sessions are full; the ninth takes the room of the one that was used first.
  const std::vector<TokenId> large(SessionStore::kMaxSessionBytes / sizeof(TokenId) - 1000);
  std::unique_ptr<SessionTurn> turn;
  for (int64_t i = 0; i < 9; ++i) {
    ASSERT_FALSE(store->begin({.id = std::to_string(i)}, "", "r", large, 1 + i % 8, turn)) << i;
    RequestEvent last;
    last.finish.emplace();
    turn->add(last);
  }
  const auto full = store->begin({.id = "8"}, "", "again", large, 9, turn);
  ASSERT_TRUE(full);
  EXPECT_THAT(full->message, HasSubstr("keeps 1 turns, 31 MiB"));
  EXPECT_LT(store->size(), SessionStore::kMaxSessions);
  std::vector<TokenId> prompt = {1};
  EXPECT_FALSE(store->extend({.id = "8", .rid = "r"}, "", {}, 9, prompt));
}

}  // namespace
}  // namespace heddle::server
