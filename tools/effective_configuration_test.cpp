// SPDX-License-Identifier: Apache-2.0
#include "tools/effective_configuration.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/fake_engine.h"
#include "tools/cli/subcommand.h"

namespace heddle::tools {
namespace {

using nlohmann::json;

ServeSettings parsed;  // by the last command that was right

std::function<int()> declare(Options& options) {
  auto settings = std::make_shared<ServeSettings>();
  declare_serve_options(options, *settings);
  return [settings] {
    parsed = *settings;
    return 0;
  };
}

const Subcommand kCommand = {.name = "serve", .summary = "", .declare = declare};

// Returns the output of the program.
std::string run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"heddle", "serve"});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  const std::array<const Subcommand*, 1> commands = {&kCommand};
  ::testing::internal::CaptureStdout();
  run_program(static_cast<int>(pointers.size()), pointers.data(), commands);
  return ::testing::internal::GetCapturedStdout();
}

// The first long name of every option and setting: "max_total_tokens".
std::vector<std::string> options_of_serve() {
  std::vector<std::string> names;
  for (const DeclaredOption& option : declared_options(kCommand)) {
    if (option.familiar) continue;
    std::string name = option.names.front().substr(2);
    std::ranges::replace(name, '-', '_');
    names.push_back(name);
  }
  return names;
}

class EffectiveConfigurationTest : public ::testing::Test {
 protected:
  // With what an engine made of `arguments` would run with.
  json configuration(const std::vector<std::string>& arguments) {
    run(arguments);
    EXPECT_TRUE(apply(parsed).ok());
    engine_.mutable_options() = parsed.model.engine;
    return effective_configuration(parsed, engine_);
  }

  server::FakeEngine engine_;
};

TEST_F(EffectiveConfigurationTest, HasEveryOptionOfServe) {
  const json line = configuration({});
  const std::vector<std::string> names = options_of_serve();
  EXPECT_GT(names.size(), 50u);
  for (const std::string& name : names) {
    EXPECT_TRUE(line.contains(name == "model" ? "model_path" : name)) << name;
  }
}

TEST_F(EffectiveConfigurationTest, ShowsWhatTheEngineSaysNotWhatItWasAsked) {
  run({"--exact", "--dtype", "auto", "--port", "8000"});
  ASSERT_TRUE(apply(parsed).ok());
  engine_.mutable_options() = {
      .model_dir = "folder/model",
      .dtype = RunDtype::kFloat32,
      .kv_cache_dtype = KvCacheDtype::kFp8E4m3,
      .exact = true,
      .num_threads = 3,
      .context_length = 100,
      .max_running_requests = 5,
      .max_total_tokens = 700,
      .random_seed = 18446744073709551615u,
      .scheduling = {.policy = QueuePolicy::kLof, .queue_timeout_seconds = 1.5},
      .cache = {.state_dtype = StateDtype::kInt8}};
  const json line = effective_configuration(parsed, engine_);
  EXPECT_EQ(line["model_path"], "folder/model");
  EXPECT_EQ(line["dtype"], "float32");
  EXPECT_EQ(line["exact"], true);
  EXPECT_EQ(line["kv_cache_dtype"], "fp8_e4m3");
  EXPECT_EQ(line["threads"], 3);
  EXPECT_EQ(line["context_length"], 100);
  EXPECT_EQ(line["max_running_requests"], 5);
  EXPECT_EQ(line["max_total_tokens"], 700);
  EXPECT_EQ(line["random_seed"], 18446744073709551615u);
  EXPECT_EQ(line["policy"], "lof");
  EXPECT_EQ(line["queue_timeout_secs"], 1.5);
  EXPECT_EQ(line["state_cache_dtype"], "int8");
  EXPECT_EQ(line["port"], 8000);
}

TEST_F(EffectiveConfigurationTest, AFileOfOptionsGivesWhatTheCommandLineDoesNot) {
  const std::string path = ::testing::TempDir() + "effective_configuration_test.yaml";
  std::ofstream(path) << "port: 70\nhost: 0.0.0.0\nmetrics: false\nmax_request_bytes: 5\n"
                         "served-model-name: [a, b]\n"
                         "preferred-sampling-params: {temperature: 0.5, top_k: 7}\n";
  json line = configuration({"--config", path});
  EXPECT_EQ(line["port"], 70);
  EXPECT_EQ(line["host"], "0.0.0.0");
  EXPECT_EQ(line["metrics"], false);
  EXPECT_EQ(line["max_request_bytes"], 5);
  EXPECT_EQ(line["served_model_name"], json::array({"a", "b"}));
  EXPECT_EQ(line["preferred_sampling_params"], json({{"temperature", 0.5}, {"top_k", 7}}));
  line = configuration({"-p", "80", "--metrics", "--config=" + path});
  EXPECT_EQ(line["port"], 80);
  EXPECT_EQ(line["metrics"], true);
  EXPECT_EQ(line["host"], "0.0.0.0");
}

TEST_F(EffectiveConfigurationTest, AFileOfOptionsHoldsSettingsBelowTuning) {
  const std::string path = ::testing::TempDir() + "effective_configuration_tuning.yaml";
  std::ofstream(path) << "policy: fair\ntuning:\n  fair-cost-input: 3\n  overlap: false\n"
                         "  max_stop: 7\nmax-prefill-tokens: 99\n";
  const json line = configuration({"--config", path, "--fair-cost-input", "4"});
  EXPECT_EQ(line["fair_cost_input"], 4.0) << "the command line wins";
  EXPECT_EQ(line["overlap"], false);
  EXPECT_EQ(line["max_stop"], 7);
  EXPECT_EQ(line["max_prefill_tokens"], 99) << "as an option";
}

TEST_F(EffectiveConfigurationTest, RequestsAreLoggedWhereTheOptionsSaySo) {
  json line = configuration({});
  EXPECT_EQ(line["log_requests"], false);
  EXPECT_EQ(line["log_requests_level"], 2);
  EXPECT_EQ(line["log_requests_format"], "text");
  EXPECT_EQ(line["log_requests_target"], "stdout");
  EXPECT_EQ(parsed.server.request_log.folder, "");
  line = configuration({"--log-requests", "--log-requests-level", "3", "--log-requests-format",
                        "json", "--log-requests-target", "folder"});
  EXPECT_EQ(line["log_requests"], true);
  EXPECT_EQ(line["log_requests_level"], 3);
  EXPECT_EQ(line["log_requests_format"], "json");
  EXPECT_EQ(line["log_requests_target"], "folder");
  EXPECT_EQ(parsed.server.request_log.folder, "folder");
}

TEST_F(EffectiveConfigurationTest, KeysStaySecret) {
  EXPECT_EQ(configuration({})["api_key"], nullptr);
  EXPECT_EQ(configuration({"--api-key", "tell nobody"})["api_key"], "***");
}

TEST_F(EffectiveConfigurationTest, ClientsSeeTheSameButNoSecrets) {
  const json line = configuration(
      {"--api-key", "tell nobody", "--admin-api-key", "nor this", "--random-seed", "7"});
  json shown = without_secrets(line);
  for (const char* name : {"api_key", "admin_api_key", "api_keys_file"}) {
    EXPECT_FALSE(shown.contains(name)) << name;
  }
  EXPECT_FALSE(shown.contains("random_seed"));
  shown["api_key"] = shown["admin_api_key"] = "***";
  shown["api_keys_file"] = nullptr;
  shown["random_seed"] = 7;
  EXPECT_EQ(shown, line) << "also what is null, empty or a list";
}

TEST_F(EffectiveConfigurationTest, NamesAreThoseClientsSee) {
  EXPECT_EQ(configuration({})["served_model_name"], json::array({"fake"}));
  EXPECT_EQ(configuration({"--served-model-name", "a,b"})["served_model_name"],
            json::array({"a", "b"}));
}

}  // namespace
}  // namespace heddle::tools
