// SPDX-License-Identifier: Apache-2.0
// Profiles, settings that change at run time, and the server's description of itself.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/admin/api_description.h"
#include "server/admin/profiler.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class OperatorRoutesTest : public ServerTest {
 protected:
  OperatorRoutesTest() {
    std::filesystem::create_directories(folder);
    options.profile_path = folder.string();
  }

  ~OperatorRoutesTest() override { std::filesystem::remove_all(folder); }

  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();

  [[nodiscard]] static Json trace_in(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return Json::parse(text.str(), nullptr, false);
  }
};

TEST_F(OperatorRoutesTest, AProfileIsATraceOfTheSteps) {
  start();
  const Reply started = post("/start_profile", {{"num_steps", 5},
                                                {"output_dir", "below"},
                                                {"profile_id", "one"},
                                                {"activities", {"CPU", "GPU"}}});
  ASSERT_EQ(started.status, 200) << started.body;
  EXPECT_EQ(engine->recorded_steps, 5);
  EXPECT_EQ(post("/start_profile", Json::object()).status, 409) << "one at a time";
  const Reply stopped = connect().call("POST", "/stop_profile");
  ASSERT_EQ(stopped.status, 200) << stopped.body;
  const Json trace = trace_in(folder / "below" / "one.trace.json");
  ASSERT_TRUE(trace.is_object());
  std::vector<std::string> names;
  for (const Json& event : trace["traceEvents"]) names.push_back(event["name"]);
  EXPECT_THAT(names,
              ::testing::ElementsAre("thread_name", "thread_name", "plan", "prefill", "sequences"));
  const Json step = trace["traceEvents"][3];
  EXPECT_EQ(step["ts"], 1000.0);
  EXPECT_EQ(step["dur"], 500000.0);
  EXPECT_EQ(step["args"]["prefill_tokens"], 3);
  EXPECT_EQ(connect().call("POST", "/stop_profile").status, 409) << "it has ended";
  EXPECT_EQ(connect().call("GET", "/start_profile").status, 200);
}

TEST_F(OperatorRoutesTest, AProfileStaysInItsFolder) {
  start();
  const auto param_of = [this](const Json& body) {
    const Reply reply = post("/start_profile", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    return error_of(reply)["param"];
  };
  EXPECT_EQ(param_of({{"output_dir", "/etc"}}), "output_dir");
  EXPECT_EQ(param_of({{"output_dir", "../x"}}), "output_dir");
  EXPECT_EQ(param_of({{"output_dir", folder.string() + "-beside"}}), "output_dir");
  EXPECT_EQ(param_of({{"profile_id", "../x"}}), "profile_id");
  EXPECT_EQ(param_of({{"profile_prefix", "a/b"}}), "profile_prefix");
  EXPECT_EQ(param_of({{"num_steps", 0}}), "num_steps");
  EXPECT_EQ(param_of({{"num_steps", kMaxRecordedSteps + 1}}), "num_steps");
  EXPECT_EQ(param_of({{"start_step", 3}}), "start_step");
  EXPECT_EQ(engine->recorded_steps, 0);
  EXPECT_EQ(post("/start_profile", {{"output_dir", (folder / "x" / ".." / "y").string()}}).status,
            200);
}

TEST_F(OperatorRoutesTest, AProfileIsRefusedThatCannotBeWritten) {
  std::ofstream(folder / "file") << "x";
  start();
  const Reply refused = post("/start_profile", {{"output_dir", "file"}});
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("it is a file"));
  EXPECT_EQ(connect().call("POST", "/stop_profile").status, 409) << "none was started";
}

TEST_F(OperatorRoutesTest, AProfileWritesOverNothing) {
  start();
  std::ofstream(folder / "one.trace.json") << "mine";
  const Reply refused = post("/start_profile", {{"profile_id", "one"}});
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("choose another profile_id"));
  EXPECT_EQ(engine->recorded_steps, 0);
  std::ostringstream text;
  text << std::ifstream(folder / "one.trace.json").rdbuf();
  EXPECT_EQ(text.str(), "mine");

  // Names that the server makes up, of one second.
  for (const char* name : {"1700000000.trace.json", "1700000000-2.trace.json"}) {
    ASSERT_EQ(post("/start_profile", Json::object()).status, 200);
    ASSERT_EQ(connect().call("POST", "/stop_profile").status, 200);
    EXPECT_TRUE(trace_in(folder / name).is_object()) << name;
  }
  ASSERT_EQ(post("/start_profile", {{"profile_id", "two"}}).status, 200);
  EXPECT_EQ(post("/start_profile", {{"profile_id", "three"}}).status, 409) << "one at a time";
  EXPECT_FALSE(std::filesystem::exists(folder / "three.trace.json"));
}

TEST_F(OperatorRoutesTest, AProfileFollowsNoSymbolicLink) {
  const std::filesystem::path elsewhere = folder / "elsewhere";
  options.profile_path = (folder / "traces").string();
  std::filesystem::create_directories(elsewhere);
  std::filesystem::create_directories(folder / "traces" / "deep");
  std::filesystem::create_directory_symlink(elsewhere, folder / "traces" / "link");
  std::filesystem::create_directory_symlink(elsewhere, folder / "traces" / "deep" / "link");
  std::filesystem::create_symlink(elsewhere / "target", folder / "traces" / "file.trace.json");
  start();
  for (const Json& body : {Json{{"output_dir", "link"}}, Json{{"output_dir", "link/below"}},
                           Json{{"output_dir", "deep/link"}}, Json{{"profile_id", "file"}}}) {
    EXPECT_EQ(post("/start_profile", body).status, 409) << body.dump();
  }
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
  EXPECT_EQ(post("/start_profile", {{"output_dir", "deep/new"}}).status, 200);
}

TEST_F(OperatorRoutesTest, NamesOfProfilesAreBounded) {
  start();
  const auto param_of = [this](const Json& body) {
    const Reply reply = post("/start_profile", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    return error_of(reply)["param"];
  };
  const std::string long_name(128, 'a');
  EXPECT_EQ(param_of({{"profile_id", long_name}, {"profile_prefix", long_name}}), "profile_prefix");
  EXPECT_EQ(param_of({{"output_dir", std::string(256, 'a')}}), "output_dir");
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "a/";
  EXPECT_EQ(param_of({{"output_dir", deep}}), "output_dir");
  EXPECT_EQ(param_of({{"output_dir", std::string("a\0b", 3)}}), "output_dir");
  EXPECT_EQ(param_of({{"output_dir", "a\nb"}}), "output_dir");
  EXPECT_EQ(engine->recorded_steps, 0);
  EXPECT_EQ(
      post("/start_profile", {{"profile_id", long_name}, {"profile_prefix", std::string(100, 'a')}})
          .status,
      200);
}

TEST_F(OperatorRoutesTest, AFolderThatProfilesCannotHaveIsRefusedAtTheStart) {
  std::ofstream(folder / "file") << "x";
  for (const std::filesystem::path below : {"file", "file/below"}) {
    options.profile_path = (folder / below).string();
    const auto refused = Server::listen(options);
    ASSERT_FALSE(refused.ok()) << options.profile_path;
    EXPECT_THAT(refused.status().message(),
                HasSubstr("--profile-path: profiles cannot be written"));
    EXPECT_THAT(refused.status().message(), HasSubstr(options.profile_path));
  }
  options.profile_path = (folder / "new" / "one").string();
  start();
  EXPECT_TRUE(std::filesystem::is_directory(options.profile_path));
}

TEST_F(OperatorRoutesTest, TheLogsLevelChanges) {
  start();
  const auto level = [this] { return get("/configure_logging").json()["log_level"]; };
  EXPECT_EQ(level(), "error");
  EXPECT_EQ(post("/configure_logging", {{"log_level", "warning"}}).json()["log_level"], "warning");
  EXPECT_EQ(level(), "warning");
  EXPECT_EQ(post("/set_internal_state", {{"server_args", {{"log_level", "error"}}}}).status, 200);
  EXPECT_EQ(level(), "error");
  EXPECT_EQ(error_of(post("/configure_logging", {{"log_level", "loud"}}))["param"], "log_level");
  EXPECT_EQ(error_of(post("/configure_logging", {{"dump_requests_folder", "x"}}))["code"],
            "unsupported_parameter");
  EXPECT_EQ(error_of(post("/set_internal_state", Json::object()))["param"], "server_args");
  const Json unknown = error_of(post("/set_internal_state", {{"server_args", {{"port", 1}}}}));
  EXPECT_EQ(unknown["param"], "server_args.port");
  EXPECT_EQ(level(), "error");
}

TEST_F(OperatorRoutesTest, TheEngineCanBeSlowedDown) {
  start();
  EXPECT_EQ(post("/slow_down", {{"forward_sleep_time", 0.5}}).json()["forward_sleep_time"], 0.5);
  EXPECT_EQ(engine->step_delay, 0.5);
  for (const Json& wrong : {Json(-1), Json(61), Json("1"), Json(true)}) {
    EXPECT_EQ(error_of(post("/slow_down", {{"forward_sleep_time", wrong}}))["param"],
              "forward_sleep_time");
  }
  EXPECT_EQ(engine->step_delay, 0.5);
  EXPECT_EQ(connect().call("GET", "/slow_down", R"({"forward_sleep_time": 0.25})").status, 200);
  EXPECT_EQ(engine->step_delay, 0.25);
  EXPECT_EQ(post("/slow_down", {{"forward_sleep_time", nullptr}}).status, 200);
  EXPECT_EQ(engine->step_delay, 0);
}

TEST_F(OperatorRoutesTest, OperatorsRoutesAskForTheAdminKey) {
  options.api_key = "user-key";
  options.admin_api_key = "admin-key";
  start();
  for (const char* path :
       {"/start_profile", "/stop_profile", "/configure_logging", "/set_internal_state",
        "/slow_down", "/update_weight_version", "/update_weights_from_disk", "/load_lora_adapter",
        "/unload_lora_adapter"}) {
    EXPECT_EQ(connect().call("POST", path, "{}", "x-api-key: user-key\r\n").status, 403) << path;
    EXPECT_NE(connect().call("POST", path, "{}", "x-api-key: admin-key\r\n").status, 403) << path;
  }
}

TEST_F(OperatorRoutesTest, EveryRouteIsDescribed) {
  options.version = "1.2.3";
  start();
  const Json description = get("/openapi.json").json();
  EXPECT_EQ(description["openapi"], "3.1.0");
  EXPECT_EQ(description["info"]["version"], "1.2.3");
  const Reply page = get("/docs");
  EXPECT_THAT(page.headers.at("content-type"), HasSubstr("text/html"));
  EXPECT_EQ(page.body.find("http://"), std::string::npos) << "it works offline";
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  for (const auto& [path, route, allow] : route_summaries()) {
    EXPECT_THAT(std::string(route->allow),
                HasSubstr(std::string(allow.substr(0, allow.find(',')))));
    EXPECT_NE(route_summary(path), "") << path;
    EXPECT_TRUE(description["paths"].contains(path)) << path;
    EXPECT_THAT(page.body, HasSubstr("<code>" + path + "</code>"));
    EXPECT_EQ(find_route(path), route) << path;
  }
  const Json chat = description["paths"]["/v1/chat/completions"];
  EXPECT_TRUE(chat.contains("post"));
  EXPECT_FALSE(chat.contains("get"));
  EXPECT_TRUE(chat["post"]["requestBody"]["content"].contains("application/json"));
  EXPECT_EQ(description["paths"]["/v1/files/{file_id}"]["delete"]["parameters"][0]["name"],
            "file_id");
  const Json cancel = description["paths"]["/v1/batches/{batch_id}/cancel"];
  EXPECT_TRUE(cancel.contains("post"));
  EXPECT_EQ(cancel["post"]["parameters"][0]["name"], "batch_id");
  EXPECT_FALSE(description["paths"]["/v1/batches/{batch_id}"].contains("post"));
}

TEST_F(OperatorRoutesTest, TheDescriptionCanBeOff) {
  options.api_docs = false;
  start();
  EXPECT_EQ(get("/openapi.json").status, 404);
  EXPECT_EQ(get("/docs").status, 404);
}

}  // namespace
}  // namespace heddle::server
