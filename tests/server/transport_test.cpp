// SPDX-License-Identifier: Apache-2.0
// Below the APIs: methods, paths, headers, limits, connections.
#include <sys/resource.h>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class TransportTest : public ServerTest {};

TEST_F(TransportTest, ProbesAnswerOnceTheModelIsServed) {
  start();
  for (const char* path :
       {"/health", "/livez", "/readyz", "/ping", "/get_model_info", "/v1/models"}) {
    EXPECT_EQ(get(path).status, 200) << path;
  }
}

TEST_F(TransportTest, ModelsAreListedAndFoundByNameWithSlashes) {
  options.served_model_names = {"org/model:7b", "alias"};
  start();
  const Json list = get("/v1/models").json();
  EXPECT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "org/model:7b");
  EXPECT_EQ(list["data"][0]["created"], 1700000000);
  EXPECT_EQ(list["data"][0]["max_model_len"], 32768);
  EXPECT_EQ(get("/v1/models/org/model:7b").status, 200);
  EXPECT_EQ(get("/v1/models/org%2Fmodel:7b").status, 200);
  EXPECT_EQ(error_of(get("/v1/models/other"))["code"], "model_not_found");
}

TEST_F(TransportTest, AnUnknownPathIsNotFound) {
  start();
  const Reply reply = get("/nothing");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(error_of(reply)["code"], "not_found");
  EXPECT_EQ(error_of(reply)["type"], "not_found_error");
}

TEST_F(TransportTest, AnUnknownPathNamesOneLikeIt) {
  start();
  const auto message = [this](std::string_view path) {
    return error_of(get(path))["message"].get<std::string>();
  };
  EXPECT_EQ(message("/v1/chat/completion"),
            "There is nothing at /v1/chat/completion. Did you mean /v1/chat/completions?");
  for (const auto& [path, meant] : std::vector<std::pair<const char*, const char*>>{
           {"/openai/v1/models", "/v1/models"},
           {"/v1/chat/complitons", "/v1/chat/completions"},
           {"/healthz", "/health"}}) {
    EXPECT_THAT(message(path), HasSubstr(fmt::format("Did you mean {}?", meant))) << path;
  }
  for (const char* path :
       {"/v1", "/v1/", "/nothing/of/the/kind", "/x", "/v1/modules", "/v1/pads"}) {
    EXPECT_EQ(message(path), fmt::format("There is nothing at {}.", path));
  }
  EXPECT_EQ(get("/" + std::string(5000, 'a')).status, 404);
}

TEST_F(TransportTest, ARouteIsFoundWithAndWithoutItsVersion) {
  start();
  EXPECT_EQ(post("/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(post("/v1/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(post("/completions", {{"prompt", "a"}}).status, 200);
  EXPECT_EQ(post("/messages", chat_body({{"max_tokens", 5}})).json()["type"], "message");
  EXPECT_EQ(post("/responses", {{"input", "Hi"}}).json()["object"], "response");
  EXPECT_EQ(get("/models").json()["object"], "list");
  EXPECT_EQ(get("/models/m").json()["id"], "m");
  EXPECT_EQ(post("/v1/generate", {{"text", "a"}}).status, 200);
  EXPECT_EQ(get("/v1/health").status, 200);
  EXPECT_EQ(post("/v1/api/chat", chat_body({{"stream", false}})).json()["done"], true);
  EXPECT_EQ(post("/v1/flush_cache", Json::object()).status, 200);
  EXPECT_EQ(post("/embeddings", Json::object()).status, 501);
  EXPECT_EQ(get("/v1/nothing").status, 404);
}

TEST_F(TransportTest, ARouteIsFoundWithSlashesAtItsEnd) {
  options.root_path = "/llm";
  start();
  for (const char* path : {"/v1/chat/completions/", "/chat/completions/", "/v1/chat/completions//",
                           "/v1/v1/chat/completions/", "/llm/v1/chat/completions/"}) {
    EXPECT_EQ(post(path, chat_body()).status, 200) << path;
  }
  const Reply answer = post("/v1/messages/", chat_body({{"max_tokens", 5}}));
  EXPECT_EQ(answer.json()["type"], "message");
  EXPECT_EQ(post("/v1/messages/", chat_body()).json()["type"], "error") << "in Anthropic's form";
  EXPECT_EQ(post("/api/chat/", chat_body({{"stream", false}})).json()["done"], true);
  EXPECT_EQ(post("/generate/", {{"text", "a"}}).status, 200);
  EXPECT_EQ(get("/health/").status, 200);
  EXPECT_EQ(get("/v1/models/").json()["object"], "list");
  EXPECT_EQ(get("/v1/models/m/").json()["id"], "m");
  EXPECT_EQ(get("/v1/files/").json()["object"], "list");
  const Json id = post("/v1/responses/", {{"input", "Hi"}}).json()["id"];
  EXPECT_EQ(get(fmt::format("/v1/responses/{}/", id.get<std::string>())).json()["id"], id);
  EXPECT_EQ(post("/v1/embeddings/", Json::object()).status, 501);
  EXPECT_EQ(post("/v1/chat/completions/?a=/", chat_body()).status, 200);
  EXPECT_EQ(get("/").status, get("//").status);
  EXPECT_EQ(get("/nothing/").status, 404);
}

TEST_F(TransportTest, RoutesOfOtherServersSayThatTheyAreNotServed) {
  start();
  const std::pair<const char*, const char*> routes[] = {
      {"POST", "/v1/uploads"},
      {"POST", "/v1/uploads/upload_1/parts"},
      {"GET", "/v1/assistants"},
      {"POST", "/v1/threads/thread_1/runs"},
      {"GET", "/v1/vector_stores/vs_1/files/file_1/content"},
      {"POST", "/v1/audio/translations"},
      {"POST", "/v1/images/edits"},
      {"DELETE", "/v1/videos/video_1"},
      {"POST", "/v1/conversations"},
      {"GET", "/v1/chat/completions/chatcmpl-1/messages"},
      {"GET", "/v1/fine_tuning/jobs/ftjob_1/events"},
      {"GET", "/v1/organization/usage/completions"},
      {"POST", "/v1/realtime/sessions"},
      {"POST", "/v1/messages/batches"},
      {"GET", "/v1/messages/batches/msgbatch_1/results"},
      {"POST", "/v1/complete"},
      {"GET", "/v1/skills"},
      {"HEAD", "/api/blobs/sha256:12"},
      {"POST", "/api/blobs/sha256:12"},
      {"POST", "/api/embed"},
      {"DELETE", "/api/delete"},
      {"POST", "/api/web_search"}};
  for (const auto& [method, path] : routes) {
    const Reply reply = connect().call(method, path);
    EXPECT_EQ(reply.status, 501) << method << " " << path;
    if (reply.status == 404) ADD_FAILURE() << reply.body;
  }
  const Reply upload = post("/v1/uploads", Json::object());
  EXPECT_EQ(error_of(upload)["message"], "This server does not serve /v1/uploads.");
}

// Anthropic's clients send the version of their API with every request.
TEST_F(TransportTest, AnswersOfSharedRoutesHaveTheFormOfTheAskingClient) {
  options.served_model_names = {"a", "b", "c"};
  start();
  const auto ask = [this](const char* path, const char* method = "GET") {
    return connect().call(method, path, {}, "anthropic-version: 2023-06-01\r\n");
  };
  const Json list = ask("/v1/models").json();
  EXPECT_FALSE(list.contains("object"));
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(list["first_id"], "a");
  EXPECT_EQ(list["last_id"], "c");
  const Json expected = {{"type", "model"},           {"id", "a"},
                         {"display_name", "a"},       {"created_at", "2023-11-14T22:13:20Z"},
                         {"max_input_tokens", 32768}, {"max_tokens", 32768}};
  EXPECT_EQ(list["data"][0], expected);
  EXPECT_EQ(ask("/v1/models/a").json(), expected);
  const auto ids = [&ask](const char* query) {
    std::string result;
    const Json page = ask((std::string("/v1/models?") + query).c_str()).json();
    for (const Json& entry : page["data"]) result += entry["id"].get<std::string>();
    return result + (page["has_more"] == true ? "+" : "");
  };
  EXPECT_EQ(ids("limit=2"), "ab+");
  EXPECT_EQ(ids("after_id=a"), "bc");
  EXPECT_EQ(ids("after_id=a&limit=1"), "b+");
  EXPECT_EQ(ids("before_id=c"), "ab");
  EXPECT_EQ(ids("before_id=c&limit=1"), "b+");
  EXPECT_EQ(ids("after_id=c"), "");
  const auto error_type = [](const Reply& reply) {
    const Json body = reply.json();
    EXPECT_EQ(body["type"], "error") << reply.body;
    EXPECT_TRUE(body.contains("request_id"));
    return body["error"]["type"];
  };
  EXPECT_EQ(error_type(ask("/v1/models?limit=0")), "invalid_request_error");
  EXPECT_EQ(error_type(ask("/v1/models?after_id=no")), "invalid_request_error");
  EXPECT_EQ(error_type(ask("/v1/models/no")), "not_found_error");
  EXPECT_EQ(error_type(ask("/v1/nothing")), "not_found_error");
  const Reply files = ask("/v1/files");
  EXPECT_EQ(files.status, 501) << "they have another form there";
  EXPECT_EQ(error_type(files), "api_error");
  EXPECT_EQ(ask("/v1/messages/batches", "POST").status, 501);
  EXPECT_EQ(get("/v1/models").json()["object"], "list");
  EXPECT_EQ(get("/api/nothing").json().size(), 1u) << "Ollama's form";
  EXPECT_TRUE(get("/api/nothing").json()["error"].is_string());
}

TEST_F(TransportTest, EveryStatusHasAReason) {
  listen();  // and loads no model
  for (const auto& [path, line] : std::vector<std::pair<const char*, const char*>>{
           {"/v1/messages", "HTTP/1.1 529 Overloaded\r\n"},
           {"/v1/completions", "HTTP/1.1 503 Service Unavailable\r\n"},
           {"/v1/embeddings", "HTTP/1.1 501 Not Implemented\r\n"}}) {
    HttpClient client(server->port());
    client.send_request("POST", path, "{}");
    ASSERT_TRUE(client.read_until("\r\n\r\n"));
    EXPECT_THAT(client.pending(), ::testing::StartsWith(line));
  }
}

TEST_F(TransportTest, ARequestHasOneHostAndNoFoldedHeaders) {
  start();
  const auto status_of = [this](std::string_view head,
                                std::string_view first = "GET /health HTTP/1.1") {
    HttpClient client(server->port());
    client.send(fmt::format("{}\r\n{}\r\n", first, head));
    const Reply reply = client.read_reply();
    if (reply.status == 400) {
      EXPECT_TRUE(client.at_end()) << head;
    }
    return reply.status;
  };
  EXPECT_EQ(status_of("Host: localhost\r\n"), 200);
  EXPECT_EQ(status_of("Host:\r\n"), 200) << "a client without a name for the server";
  EXPECT_EQ(status_of("Host: [::1]:30000\r\n"), 200);
  EXPECT_EQ(status_of("Host: heddle_server:80\r\n"), 200);
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of("", "GET /health HTTP/1.0"), 200) << "which knows no Host";
  EXPECT_EQ(status_of("Host: a\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status_of("Host: a\r\nhOST: b\r\n"), 400);
  EXPECT_EQ(status_of("Host: a\r\nHost: b\r\n", "GET /health HTTP/1.0"), 400);
  for (const char* host :
       {"a b", "a/b", "user@a", "a:b", "a:99999", "[::1", "[a]", "a,b@c", "a,b", "::1"}) {
    EXPECT_EQ(status_of(fmt::format("Host: {}\r\n", host)), 400) << host;
  }
  EXPECT_EQ(status_of("Host: a\r\n", "GET http://b/health HTTP/1.1"), 200);
  EXPECT_EQ(status_of("Host: a\r\n", "GET http://u@b/health HTTP/1.1"), 400);
  EXPECT_EQ(status_of("Host: a\r\nX-A: b\r\n c\r\n"), 400);
  EXPECT_EQ(status_of("Host: a\r\nX-A: b\r\n\tc\r\n"), 400);
  EXPECT_EQ(status_of("Host: a\r\nX-A: b\r\n \r\n"), 400);
  EXPECT_EQ(status_of("Host: a\r\nX-A:\r\n b\r\n"), 400);
  EXPECT_EQ(status_of(" Host: a\r\n"), 400);
  // In pieces, so that the fold begins one.
  HttpClient client(server->port());
  client.send("GET /health HTTP/1.1\r\nHost: a\r\nX-A: b\r\n");
  client.send(" c\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 400);
}

TEST_F(TransportTest, AWrongMethodNamesTheRightOnes) {
  start();
  const Reply reply = get("/v1/chat/completions");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.headers.at("allow"), "POST");
  EXPECT_EQ(error_of(reply)["code"], "method_not_allowed");
  EXPECT_EQ(connect().call("DELETE", "/health").status, 405);
  EXPECT_EQ(connect().call("PUT", "/generate", R"({"text":"a"})").status, 200);
}

TEST_F(TransportTest, HeadGivesTheHeadersOfGet) {
  start();
  HttpClient client(server->port());
  const Reply head = client.call("HEAD", "/v1/models");
  EXPECT_EQ(head.status, 200);
  const Reply full = client.call("GET", "/v1/models");  // and leaves the connection in step
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(full.body.size()));
}

TEST_F(TransportTest, PreflightsAndOriginsAreAnswered) {
  start();
  const Reply preflight =
      connect().call("OPTIONS", "/v1/chat/completions", {},
                     "Origin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                     "Access-Control-Request-Headers: authorization, content-type\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-credentials"), "true");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, content-type");
  EXPECT_THAT(preflight.headers.at("access-control-allow-methods"), HasSubstr("POST"));
  const Reply plain = connect().call("GET", "/health", {}, "Origin: http://a.example\r\n");
  EXPECT_EQ(plain.headers.at("access-control-allow-origin"), "http://a.example");
  EXPECT_FALSE(get("/health").headers.contains("access-control-allow-origin"));
}

TEST_F(TransportTest, OpenAiRoutesWantJsonContent) {
  start();
  const std::string body = chat_body().dump();
  const Reply refused =
      connect().call("POST", "/v1/chat/completions", body, "Content-Type: text/plain\r\n");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(error_of(refused)["message"].get<std::string>(), HasSubstr("text/plain"));
  EXPECT_EQ(connect()
                .call("POST", "/v1/chat/completions", body,
                      "Content-Type: Application/JSON; charset=utf-8\r\n")
                .status,
            200);
  EXPECT_EQ(connect().call("POST", "/generate", R"({"text":"a"})", "Content-Type: a/b\r\n").status,
            200);
  EXPECT_EQ(
      connect().call("POST", "/generate", R"({"text":"a"})", "Content-Encoding: gzip\r\n").status,
      415);
}

TEST_F(TransportTest, TheRequestIdComesBack) {
  start();
  EXPECT_EQ(
      connect().call("GET", "/health", {}, "X-Request-Id: my-id.7\r\n").headers.at("x-request-id"),
      "my-id.7");
  const Reply odd = connect().call("GET", "/health", {}, "X-Request-Id: not an id\r\n");
  EXPECT_NE(odd.headers.at("x-request-id"), "not an id");
  const Reply chat = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(chat.headers.at("x-request-id"), chat.json()["id"].get<std::string>());
  EXPECT_THAT(chat.json()["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  const Reply named = post("/v1/chat/completions", chat_body({{"rid", "body-id"}}));
  EXPECT_EQ(named.headers.at("x-request-id"), "body-id");
  EXPECT_EQ(named.json()["id"], "body-id");
}

TEST_F(TransportTest, AnApiKeyGuardsAllButTheProbes) {
  options.api_key = "secret";
  start();
  EXPECT_EQ(get("/health").status, 200);
  const Reply refused = get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(error_of(refused)["code"], "invalid_api_key");
  const auto status_with = [this](const char* headers) {
    return connect().call("GET", "/v1/models", {}, headers).status;
  };
  EXPECT_EQ(status_with("Authorization: bEARER secret\r\n"), 200);
  EXPECT_EQ(status_with("x-api-key: secret\r\n"), 200);
  EXPECT_EQ(status_with("Authorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status_with("Authorization: Bearer secret2\r\n"), 401);
}

TEST_F(TransportTest, AConnectionServesManyRequests) {
  start();
  HttpClient client(server->port());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.call("GET", "/health").status, 200);
    EXPECT_EQ(client.post("/v1/chat/completions", chat_body()).status, 200);
    EXPECT_TRUE(client.post("/v1/chat/completions", chat_body({{"stream", true}})).complete);
    EXPECT_EQ(client.post_text("/v1/chat/completions", std::string("{")).status, 400);
    EXPECT_EQ(client.call("POST", "/nothing", "ignored body").status, 404);
  }
}

TEST_F(TransportTest, RequestsSentAheadWaitTheirTurn) {
  engine->step_microseconds = 2000;
  start();
  HttpClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send_request("POST", "/v1/chat/completions",
                        chat_body({{"rid", fmt::format("r{}", i)}}).dump());
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_reply().json()["id"], fmt::format("r{}", i));
}

TEST_F(TransportTest, ConnectionCloseIsHonoured) {
  start();
  HttpClient client(server->port());
  const Reply reply = client.call("GET", "/health", {}, "Connection: close\r\n");
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

// A socket that is closed with bytes unread is reset, and a reset may overtake the answer.
TEST_F(TransportTest, BytesBehindTheLastRequestDoNotResetTheConnection) {
  start();
  for (const std::string_view head :
       {"GET /health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        "GET /health HTTP/1.0\r\n\r\n"}) {
    HttpClient client(server->port());
    client.send(std::string(head) + std::string(20'000, 'x'));
    EXPECT_EQ(client.read_reply().status, 200);
    EXPECT_TRUE(client.ends_in_order()) << head;
  }
}

TEST_F(TransportTest, OldHttpGetsAStreamWithoutChunks) {
  start();
  HttpClient client(server->port());
  const std::string body = chat_body({{"stream", true}}).dump();
  client.send(
      fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  const Reply reply = client.read_reply();
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST_F(TransportTest, ABodyInChunksIsRead) {
  start();
  HttpClient client(server->port());
  client.send(
      "POST /generate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
      "8\r\n{\"text\":\r\n4\r\n\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(TransportTest, ABodyIsInvitedWhenTheClientAsks) {
  start();
  HttpClient client(server->port());
  const std::string body = R"({"text":"a"})";
  client.send(
      fmt::format("POST /generate HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n"
                  "Content-Length: {}\r\n\r\n",
                  body.size()));
  ASSERT_TRUE(client.read_until("100 Continue\r\n\r\n"));
  client.send(body);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(TransportTest, AnAnnouncedBodyAboveTheLimitIsRefused) {
  options.http.max_request_bytes = 1000;
  start();
  HttpClient client(server->port());
  const Reply reply =
      client.call("POST", "/generate", std::string(1001, 'x'), "Origin: http://page\r\n");
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(error_of(reply)["code"], "request_too_large");
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("1000 bytes"));
  EXPECT_TRUE(reply.headers.contains("x-request-id"));
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "http://page");
  EXPECT_TRUE(client.at_end());
}

// A server that took such a body for none would take its bytes for the next request.
TEST_F(TransportTest, ABodyInAnotherCodingEndsTheConnection) {
  start();
  const std::tuple<const char*, const char*, int> codings[] = {
      {"1.1", "gzip", 501},
      {"1.1", "gzip, chunked", 501},
      {"1.1", "chunked\r\nTransfer-Encoding: x", 400},  // the parser's own refusal
      {"1.1", "", 501},
      {"1.0", "chunked", 501}};
  for (const auto& [version, coding, status] : codings) {
    HttpClient client(server->port());
    client.send(
        fmt::format("POST /generate HTTP/{}\r\nHost: t\r\nConnection: keep-alive\r\n"
                    "Transfer-Encoding: {}\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: t\r\n\r\n",
                    version, coding));
    EXPECT_EQ(client.read_reply().status, status) << version << " " << coding;
    EXPECT_TRUE(client.at_end()) << version << " " << coding;
  }
}

TEST_F(TransportTest, AHugeAnnouncedBodyCostsNothing) {
  start();
  HttpClient client(server->port());
  client.send("POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 400);  // not even a number of bytes
  HttpClient other(server->port());
  other.send("POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: 9999999999999\r\n\r\n");
  EXPECT_EQ(other.read_reply().status, 413);
}

TEST_F(TransportTest, ChunksThatAddUpAboveTheLimitAreRefused) {
  options.http.max_request_bytes = 1000;
  start();
  HttpClient client(server->port());
  client.send("POST /generate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) client.send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(client.read_reply().status, 413);
}

TEST_F(TransportTest, TheFramingOfChunksIsBounded) {
  start();
  const std::string head =
      "POST /generate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string field = "name: " + std::string(1000, 'v') + "\r\n";
  const std::string body = R"({"text":"a"})";
  std::string trailer;
  while (trailer.size() < 200 << 10) trailer += field;
  const std::pair<const char*, std::string> endless[] = {
      {"trailer", "0\r\n" + trailer},
      {"trailer of a body", fmt::format("{:x}\r\n{}\r\n0\r\n{}", body.size(), body, trailer)},
      {"extension", "1;" + std::string(200 << 10, 'e')},
      {"size", std::string(200 << 10, '0')}};
  for (const auto& [what, sent] : endless) {
    HttpClient client(server->port());
    client.send(head + sent);
    const Reply reply = client.read_reply();
    EXPECT_THAT(reply.status, ::testing::AnyOf(400, 431)) << what;
    EXPECT_EQ(reply.headers.at("connection"), "close") << what;
  }
  HttpClient client(server->port());
  client.send(head + fmt::format("{:x};why=not\r\n{}\r\n0\r\n{}\r\n", body.size(), body, field));
  EXPECT_EQ(client.read_reply().status, 200) << "a small one is fine";
}

TEST_F(TransportTest, TheBodiesHeldAtOnceAreBounded) {
  options.http.max_held_body_bytes = 300 << 10;
  start();
  const auto begin = [](HttpClient& client, size_t bytes) {
    client.send(fmt::format("POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
                            bytes + 18));
    client.send("{\"text\":\"a\"," + std::string(bytes, ' '));
  };
  // Either of two bodies that arrive together may be one too many: tried until it is the second.
  EXPECT_TRUE(eventually([this, &begin] {
    HttpClient first(server->port());
    begin(first, 290 << 10);
    HttpClient second(server->port());
    begin(second, 200 << 10);
    second.send("\"b\":0}");
    const bool refused = second.read_reply().status == 503;
    EXPECT_EQ(post("/generate", {{"text", "a"}}).status, 200) << "small ones are taken";
    first.send("\"b\":0}");
    return first.read_reply().status == 200 && refused;
  }));
  EXPECT_TRUE(eventually([this, &begin] {  // what was held is free again
    HttpClient third(server->port());
    begin(third, 250 << 10);
    third.send("\"b\":0}");
    return third.read_reply().status == 200;
  }));
}

TEST_F(TransportTest, ARefusedBodyTakesNothingFromOthers) {
  options.api_key = "secret";
  options.http.max_held_body_bytes = 300 << 10;
  options.http.max_request_bytes = 4 << 20;
  start();
  const std::string body = R"({"text":"a"})" + std::string(250 << 10, ' ');
  // In chunks that never end: answered at once, and the connection goes.
  HttpClient chunked(server->port());
  chunked.send("POST /generate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  const Reply refused = chunked.read_reply();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  // Announced and sent but for the last byte: dropped while it is read.
  HttpClient announced(server->port());
  announced.send(fmt::format("POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
                             (900 << 10) + 1));
  announced.send(std::string(900 << 10, ' '));
  EXPECT_EQ(connect().call("POST", "/generate", body, "x-api-key: secret\r\n").status, 200);
  announced.send(" ");
  EXPECT_EQ(announced.read_reply().status, 401);
  EXPECT_EQ(announced.call("GET", "/health").status, 200) << "such a connection is kept";
}

TEST_F(TransportTest, ABodyThatNoRouteReadsTakesNothingFromOthers) {
  options.api_key = "secret";
  options.http.max_held_body_bytes = 300 << 10;
  options.http.max_request_bytes = 4 << 20;
  start();
  constexpr size_t kBytes = 900 << 10;
  const auto begin = [](HttpClient& client, std::string_view line) {
    client.send(
        fmt::format("{} HTTP/1.1\r\nHost: t\r\nx-api-key: secret\r\nContent-Length: {}"
                    "\r\n\r\n{}",
                    line, kBytes + 1, std::string(kBytes, ' ')));
  };
  const std::string_view lines[] = {"GET /livez", "GET /v1/models/m", "POST /flush_cache",
                                    "POST /continue_generation"};
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (const std::string_view line : lines) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    begin(*clients.back(), line);
  }
  const std::string body = R"({"text":"a"})" + std::string(250 << 10, ' ');
  EXPECT_EQ(connect().call("POST", "/generate", body, "x-api-key: secret\r\n").status, 200);
  for (const auto& client : clients) {
    client->send(" ");
    EXPECT_EQ(client->read_reply().status, 200);
    EXPECT_EQ(client->call("GET", "/health").status, 200) << "such a connection is kept";
  }
}

TEST_F(TransportTest, ABodyIsRefusedByTheLimitOfItsRoute) {
  start();
  const auto refused = [this](std::string_view line, size_t bytes) {
    HttpClient client(server->port());  // which announces the body and sends nothing of it
    client.send(
        fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", line, bytes));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 413) << line;
    EXPECT_TRUE(reply.headers.contains("x-request-id"));
    EXPECT_TRUE(client.at_end());
    return error_of(reply)["message"].get<std::string>();
  };
  EXPECT_THAT(refused("POST /abort_request", (64 << 10) + 1), HasSubstr("65536 bytes"));
  EXPECT_THAT(refused("POST /pause_generation", (64 << 10) + 1), HasSubstr("65536 bytes"));
  EXPECT_THAT(refused("POST /continue_generation", (1 << 20) + 1), HasSubstr("1048576 bytes"));
  EXPECT_THAT(refused("GET /livez", (1 << 20) + 1), HasSubstr("1048576 bytes"));

  const auto in_chunks = [this](std::string_view line, size_t num_chunks) {
    HttpClient client(server->port());
    client.send(
        fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", line));
    for (size_t i = 0; i < num_chunks; ++i) {
      client.send("1000\r\n" + std::string(0x1000, ' ') + "\r\n");
    }
    client.send("2\r\n{}\r\n0\r\n\r\n");
    return client.read_reply().status;
  };
  EXPECT_EQ(in_chunks("POST /pause_generation", 15), 200);
  EXPECT_EQ(in_chunks("POST /pause_generation", 16), 413);
  EXPECT_EQ(in_chunks("POST /continue_generation", 16), 200);
  EXPECT_EQ(in_chunks("POST /continue_generation", 256), 413);
}

TEST_F(TransportTest, ABodyIsNotInvitedWhereTheAnswerIsDecided) {
  options.api_key = "secret";
  start();
  for (const auto& [line, status] :
       {std::pair("POST /nope", "404 "), {"POST /generate", "401 "}, {"POST /livez", "405 "}}) {
    HttpClient client(server->port());
    client.send(fmt::format(
        "{} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", line));
    ASSERT_TRUE(client.read_until("\r\n\r\n"));
    EXPECT_THAT(client.pending(), ::testing::StartsWith(std::string("HTTP/1.1 ") + status));
    EXPECT_EQ(client.read_reply().headers.at("connection"), "close")
        << "whether the body comes nevertheless is open";
  }
}

TEST_F(TransportTest, AHeaderAboveTheLimitIsRefused) {
  start();
  HttpClient client(server->port());
  client.send("GET /health HTTP/1.1\r\nX-Long: " + std::string(100000, 'x') + "\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 431);
}

TEST_F(TransportTest, ASlowHeaderAndASlowBodyTimeOut) {
  options.http.header_timeout_seconds = 0.2;
  options.http.body_timeout_seconds = 0.2;
  start();
  HttpClient header(server->port());
  header.send("GET /health HT");
  HttpClient body(server->port());
  body.send("POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n{");
  const Reply reply = body.read_reply();
  EXPECT_EQ(reply.status, 408);
  EXPECT_EQ(error_of(reply)["code"], "request_timeout");
  EXPECT_EQ(header.read_reply().status, 408);
}

TEST_F(TransportTest, AnIdleConnectionIsClosedInTheEnd) {
  options.http.idle_timeout_seconds = 0.2;
  start();
  EXPECT_TRUE(HttpClient(server->port()).at_end()) << "no request came";
  // Again when the first request came too late.
  EXPECT_TRUE(eventually([this] {
    HttpClient client(server->port());
    return client.call("GET", "/health").status == 200 && client.at_end();
  }));
}

TEST_F(TransportTest, GarbageIsAnsweredAndTheServerGoesOn) {
  start();
  for (const std::string_view garbage :
       {std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
        std::string_view("GET\r\n\r\n"), std::string_view("GET /health HTTP/9.9\r\n\r\n"),
        std::string_view("POST /generate HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string_view("POST /generate HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: "
                         "chunked\r\n\r\n0\r\n\r\n"),
        std::string_view("GET / HTTP/1.1\r\nbad header\r\n\r\n"),
        std::string_view("POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    HttpClient client(server->port());
    client.send(garbage);
    const int status = client.read_reply().status;
    EXPECT_TRUE(status == 400 || status == 0) << garbage << " -> " << status;
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(TransportTest, TheNumberOfConnectionsIsBounded) {
  options.http.max_connections = 3;
  start();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    EXPECT_EQ(clients.back()->call("GET", "/health").status, 200);
  }
  const Reply refused = get("/health");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_of(refused)["code"], "queue_full");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  clients.pop_back();
  EXPECT_TRUE(eventually([this] { return get("/health").status == 200; }));
}

TEST_F(TransportTest, TheSoftLimitOfFilesIsRaisedForTheConnections) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 2000) GTEST_SKIP() << "the hard limit is too low to see it";
  const rlimit low{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  options.http.max_connections = 1500;
  start();
  rlimit raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GE(raised.rlim_cur, 1500u);
  EXPECT_EQ(raised.rlim_max, before.rlim_max);
}

TEST_F(TransportTest, FewerConnectionsAreTakenWhereTheHardLimitOfFilesIsLow) {
  EXPECT_EQ(connections_within(16384, 1 << 20).value(), 16384);
  EXPECT_EQ(connections_within(16384, 1024).value(), 1024 - 256);
  const auto none = connections_within(16384, 256);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("may open 256 files"));
  EXPECT_THAT(none.status().message(), HasSubstr("ulimit -n 16640"));
}

TEST_F(TransportTest, APortInUseIsNamed) {
  start();
  ServerOptions second = options;
  second.http.port = server->port();
  const auto result = Server::listen(second);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), HasSubstr(std::to_string(server->port())));
  EXPECT_THAT(result.status().message(), HasSubstr("in use"));
}

TEST_F(TransportTest, AHostThatIsNotOursIsAnError) {
  options.http.host = "no such host";
  EXPECT_FALSE(Server::listen(options).ok());
}

}  // namespace
}  // namespace heddle::server
