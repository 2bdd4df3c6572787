// SPDX-License-Identifier: Apache-2.0
// Weights that are exchanged under a real server: answers are those of a server that started with
// them, to the bit, and a folder that does not fit changes nothing.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "checkpoint/checkpoint_fixture.h"
#include "server/real_engine_fixture.h"

namespace heddle::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"model-00001-of-00002.safetensors",
                                  "model-00002-of-00002.safetensors",
                                  "model.safetensors.index.json"};
constexpr const char* kShard = kFiles[1];

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Replaces `from` by `to` everywhere in a file. Returns how often.
int64_t replace_all(const fs::path& path, std::string_view from, std::string_view to) {
  std::string text = read(path);
  int64_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  if (count > 0) write(path, text);
  return count;
}

// Changes one setting of a config.json, which is there.
void set(const fs::path& folder, std::string_view from, std::string_view to) {
  EXPECT_EQ(replace_all(folder / "config.json", from, to), 1) << from;
}

// The tensors of this prefix get one of the same length.
void rename(const fs::path& folder, const std::string& prefix, const std::string& other) {
  int64_t count = 0;
  for (const char* file : kFiles) {
    count += replace_all(folder / file, "\"" + prefix, "\"" + other);
  }
  EXPECT_EQ(count, 2) << prefix << " in a shard and in the index";
}

// Where the numbers of a safetensors file begin.
size_t data_begin(const std::string& file) {
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  return sizeof(header) + header;
}

// Turns the sign of every fifth bf16 number.
void change_numbers(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string file = read(entry.path());
    for (size_t i = data_begin(file) + 1; i < file.size(); i += 10) {
      file[i] = static_cast<char>(static_cast<unsigned char>(file[i]) ^ 0x80u);
    }
    write(entry.path(), file);
  }
}

class RealUpdateTest : public RealEngineFixture {
 protected:
  RealUpdateTest() {
    change_numbers(copy("changed"));
    engine_options.max_total_tokens = 2048;
  }

  // A copy of the small model of this name.
  [[nodiscard]] fs::path copy(const char* name) const {
    const fs::path to = folder_.path() / name;
    fs::copy(original_, to);
    return to;
  }

  [[nodiscard]] fs::path changed() const { return folder_.path() / "changed"; }

  void serve(const fs::path& model_dir) {
    server.reset();
    engine_options.model_dir = model_dir;
    start_real();
  }

  // Greedy and drawn tokens with their probabilities. Nothing of it comes from the cache when
  // `cached` is 0.
  [[nodiscard]] Json answers(int64_t* cached = nullptr) const {
    Json answers = Json::array();
    for (const double temperature : {0.0, 0.8}) {
      const Reply reply =
          post("/generate", {{"text", "The quick brown fox jumps over the lazy dog and runs away."},
                             {"sampling_params",
                              {{"temperature", temperature},
                               {"sampling_seed", 3},
                               {"ignore_eos", true},
                               {"max_new_tokens", 16}}},
                             {"return_logprob", true}});
      EXPECT_EQ(reply.status, 200) << reply.body;
      const Json body = reply.json();
      answers.push_back(body["output_ids"]);
      answers.push_back(body["meta_info"]["output_token_logprobs"]);
      if (cached != nullptr && temperature == 0) *cached = body["meta_info"]["cached_tokens"];
    }
    return answers;
  }

  [[nodiscard]] Reply update(const fs::path& model_dir, Json more = Json::object()) const {
    more["model_path"] = model_dir.string();
    return post("/update_weights_from_disk", more);
  }

  const fs::path original_ = testing::repository_path("models/heddle-tiny");
  checkpoint::testing::TemporaryFolder folder_;
};

TEST_F(RealUpdateTest, AnswersAreThoseOfAServerThatStartedWithThem) {
  const std::pair<const char*, std::function<void(EngineOptions&)>> settings[] = {
      {"as stored", [](EngineOptions&) {}},
      {"exact, with the head that drafts",
       [](EngineOptions& asked) {
         asked.exact = true;
         asked.speculative.algorithm = DraftAlgorithm::kMtp;
       }},
      {"quantised", [](EngineOptions& asked) { asked.quantization = Quantization::kInt8; }},
  };
  for (const auto& [name, set] : settings) {
    SCOPED_TRACE(name);
    const EngineOptions plain = engine_options;
    set(engine_options);
    serve(changed());
    const Json expected = answers();
    serve(original_);
    const Json before = answers();
    ASSERT_NE(before, expected);
    int64_t cached = 0;
    EXPECT_EQ(answers(&cached), before);
    EXPECT_GT(cached, 0);
    for (int round = 0; round < 2; ++round) {
      const Reply there = update(changed(), {{"weight_version", "changed"}});
      ASSERT_EQ(there.status, 200) << there.body;
      EXPECT_EQ(answers(&cached), expected);
      EXPECT_EQ(cached, 0) << "nothing is left of what the old weights computed";
      const Reply back = update(original_);
      ASSERT_EQ(back.status, 200) << back.body;
      EXPECT_EQ(answers(&cached), before);
      EXPECT_EQ(cached, 0);
    }
    engine_options = plain;
  }
}

TEST_F(RealUpdateTest, AFolderThatDoesNotFitChangesNothing) {
  engine_options.speculative.algorithm = DraftAlgorithm::kMtp;
  engine_options.speculative.num_draft_tokens = 2;  // bits follow the number of rows of steps
  serve(original_);
  const Json before = answers();
  const auto edited = [this](const char* name, const std::function<void(const fs::path&)>& edit) {
    const fs::path folder = copy(name);
    edit(folder);
    return folder;
  };
  const std::pair<fs::path, const char*> cases[] = {
      {folder_.path() / "nowhere", "nowhere"},
      {edited("empty", [](const fs::path& folder) { fs::remove(folder / kShard); }), kShard},
      {edited("cut",
              [](const fs::path& folder) {
                fs::resize_file(folder / kShard, fs::file_size(folder / kShard) - 100);
              }),
       kShard},
      {edited("no config", [](const fs::path& folder) { fs::remove(folder / "config.json"); }),
       "config.json"},
      {edited("other model",
              [](const fs::path& folder) { set(folder, "\"qwen3_next\"", "\"llama\""); }),
       "config.json"},
      {edited("other theta",
              [](const fs::path& folder) {
                set(folder, "\"rope_theta\": 100000.0", "\"rope_theta\": 10000.0");
              }),
       "the settings of rotary embeddings differ from those in use"},
      {edited("tied",
              [](const fs::path& folder) {
                set(folder, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
                rename(folder, "lm_head.", "lm_hood.");  // a stored head would be used
              }),
       "tie_word_embeddings is true, and false in use"},
      {edited("other shape",
              [](const fs::path& folder) {
                set(folder, "\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 32");
              }),
       "the settings of experts differ from those in use"},
      {edited("no norm",
              [](const fs::path& folder) { rename(folder, "model.norm.", "model.nurm."); }),
       "1 missing: model.norm.weight"},
      {edited("half a head",
              [](const fs::path& folder) { rename(folder, "mtp.norm.", "mtp.nurm."); }),
       "1 missing: mtp.norm.weight"},
      {edited("other dtype",
              [](const fs::path& folder) {
                for (const char* file : {kFiles[0], kShard}) {
                  EXPECT_GT(replace_all(folder / file, "\"BF16\"", "\"F16\" "), 0);
                }
              }),
       "is float16, and bfloat16 in use"},
  };
  for (const auto& [folder, message] : cases) {
    const Reply reply = update(folder, {{"weight_version", "never"}});
    EXPECT_EQ(reply.status, 400) << folder;
    const Json answer = reply.json();
    EXPECT_EQ(answer["success"], false);
    EXPECT_THAT(answer["message"].get<std::string>(),
                AllOf(HasSubstr("the weights in use stay"), HasSubstr(folder.string()),
                      HasSubstr(message)));
  }
  EXPECT_EQ(get("/get_weight_version").json()["weight_version"], "default");
  ASSERT_EQ(post("/flush_cache?timeout=60", Json::object()).status, 200);
  EXPECT_EQ(answers(), before);
  EXPECT_EQ(update(changed()).status, 200) << "a good one is taken after all these";
  EXPECT_NE(answers(), before);
}

// Whenever the update comes, an answer is of one set of weights.
TEST_F(RealUpdateTest, AStreamThatRunsEndsWithTheWeightsItBeganWith) {
  engine_options.exact = true;
  serve(original_);
  const Json body = {
      {"text", "Once upon a time"},
      {"sampling_params", {{"temperature", 0}, {"ignore_eos", true}, {"max_new_tokens", 64}}}};
  const Json expected = post("/generate", body).json()["output_ids"];
  ASSERT_EQ(expected.size(), 64u);
  HttpClient running = connect();
  running.send_request("POST", "/generate", body.dump());
  HttpClient updating = connect();
  updating.send_request("POST", "/update_weights_from_disk",
                        Json{{"model_path", changed().string()}, {"weight_version", "v2"}}.dump());
  const Json answer = running.read_reply().json();
  EXPECT_EQ(updating.read_reply().status, 200);
  const bool is_old = answer["meta_info"]["weight_version"] == "default";
  const Json after = post("/generate", body).json();
  EXPECT_EQ(after["meta_info"]["weight_version"], "v2");
  EXPECT_NE(after["output_ids"], expected);
  EXPECT_EQ(answer["output_ids"], is_old ? expected : after["output_ids"]);
}

TEST_F(RealUpdateTest, PausedRequestsContinueWithThem) {
  engine_options.exact = true;
  serve(original_);
  EXPECT_EQ(post("/pause_generation", {{"mode", "in_place"}}).status, 200);
  HttpClient waiting = connect();
  const Json body = {
      {"text", "Once upon a time"},
      {"sampling_params", {{"temperature", 0}, {"ignore_eos", true}, {"max_new_tokens", 16}}}};
  waiting.send_request("POST", "/generate", body.dump());
  ASSERT_TRUE(eventually([&] {
    return get("/get_server_info").json()["internal_states"][0]["num_waiting_reqs"] == 1;
  }));
  const Reply reply = update(changed(), {{"weight_version", "v2"}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["num_paused_requests"], 1);
  EXPECT_EQ(get("/readyz").status, 503) << "the pause goes on";
  EXPECT_EQ(post("/continue_generation", Json::object()).status, 200);
  const Json answer = waiting.read_reply().json();
  EXPECT_EQ(answer["meta_info"]["weight_version"], "v2");
  EXPECT_EQ(answer["output_ids"], post("/generate", body).json()["output_ids"]);
  EXPECT_EQ(update(original_, {{"flush_cache", false}}).status, 400) << "the engine is exact";
}

}  // namespace
}  // namespace heddle::server
