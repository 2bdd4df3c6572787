// SPDX-License-Identifier: Apache-2.0
// Batches whose process ends: at every step that changes the disk, by a shutdown, and by kill -9.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/batch/batch_runner.h"
#include "server/http/key_ring.h"
#include "server/server_fixture.h"
#include "server/storage/storage_folder.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Cuts every append in two steps and calls `at_end` before the step `num_steps` (from 0).
class StepsUntil : public DiskFaults {
 public:
  StepsUntil(int64_t num_steps, std::function<int(DiskStep)> at_end)
      : num_steps_(num_steps), at_end_(std::move(at_end)) {}

  int before(DiskStep step, const std::string& name, size_t& num_bytes) override {
    const MutexLock lock(mutex_);
    if (count_ >= num_steps_) return at_end_(step);
    ++count_;
    if (step == DiskStep::kAppend && num_bytes > 1 && halved_.insert(name).second) {
      num_bytes /= 2;
    } else {
      halved_.erase(name);
    }
    return 0;
  }

  [[nodiscard]] int64_t count() const {
    const MutexLock lock(mutex_);
    return count_;
  }

  [[nodiscard]] bool ended() const { return count() >= num_steps_; }

 private:
  const int64_t num_steps_;
  const std::function<int(DiskStep)> at_end_;
  mutable Mutex mutex_;
  int64_t count_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::set<std::string> halved_ HEDDLE_GUARDED_BY(mutex_);
};

// A disk on which nothing changes any more from a step on, as after the end of the process.
std::shared_ptr<StepsUntil> dead_after(int64_t num_steps) {
  return std::make_shared<StepsUntil>(num_steps, [](DiskStep) { return EIO; });
}

std::string request_line(std::string_view id, const Json& body) {
  return Json{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}
             .dump() +
         "\n";
}

// Memory where the system offers it as a folder: thousands of syncs to a disk take minutes.
fs::path quick_folder() {
  const char* const memory = "/dev/shm";
  return ::access(memory, W_OK) == 0 ? fs::path(memory) : fs::path(::testing::TempDir());
}

// A folder of its own for each test, and what is in it.
class StorageFolderOfTest {
 public:
  StorageFolderOfTest() { clear(); }

  ~StorageFolderOfTest() { clear(); }

  StorageFolderOfTest(const StorageFolderOfTest&) = delete;
  StorageFolderOfTest& operator=(const StorageFolderOfTest&) = delete;

  void clear() const {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }

  const fs::path path =
      quick_folder() / fmt::format("heddle-{}-{}",
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                                   ::getpid());

  // The files beside the lock, by name.
  [[nodiscard]] std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const std::string name = entry.path().filename();
      if (name != "heddle.lock") found[name] = text_of(name);
    }
    return found;
  }

  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path / name, std::ios::binary).rdbuf();
    return text.str();
  }

  // The records of batches.
  [[nodiscard]] std::vector<Json> records() const {
    std::vector<Json> found;
    for (const auto& [name, text] : files()) {
      if (name.starts_with("batch_") && name.ends_with(".json")) found.push_back(Json::parse(text));
    }
    return found;
  }

  // The custom ids of the whole lines of a file, each as often as it is there.
  [[nodiscard]] std::vector<std::string> ids_in(const std::string& file) const {
    std::vector<std::string> ids;
    const std::string text = text_of(file);
    for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
      ids.push_back(line.is_object() ? line.value("custom_id", "?") : "?");
    }
    return ids;
  }
};

// --- Every step, one thread --------------------------------------------------------------------

// One life of a process: a store, a runner and the threads between them, played by one queue.
// Clients ask for the batch after every turn, so that `shown` is all they ever saw.
class Life {
 public:
  struct Script {
    int num_lines = 5;
    int cancel_after = -1;  // answers
    int num_cancels = 1;    // one after each turn from then on
    int64_t now = 1700000000;
    std::string input{};  // of the file, instead of num_lines lines
    bool fails_every_third = true;
  };

  Life(const fs::path& folder, std::shared_ptr<StepsUntil> faults, Script script,
       FakeEngine& engine)
      : faults_(std::move(faults)), script_(std::move(script)), engine_(engine) {
    auto opened = FileStore::open(folder, int64_t{1} << 20, 1, faults_);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    store = std::move(opened).value();
    runner = std::make_unique<BatchRunner>(
        BatchHost{
            .threads =
                {.run_on_worker =
                     [this](std::function<void()> work) {
                       queue_.push_back(std::move(work));
                       return true;
                     },
                 .post = [this](std::function<void()> work) { queue_.push_back(std::move(work)); }},
            .post_after = [this](double,
                                 std::function<void()> work) { later_.push_back(std::move(work)); },
            .dispatch = [this](std::shared_ptr<Exchange> own) { answer(std::move(own)); },
            .engine = [this]() -> Engine& { return engine_; },
            .unix_time = [this] { return script_.now; },
            .draining = [] { return false; },
            .model_names = [] { return std::vector<std::string>{"m"}; },
            .find_key = [](const std::string&) { return nullptr; }},
        *store);
    runner->restore();
    runner->resume();
  }

  // Uploads and starts a batch unless there is one. `uploaded`, `created`: the client was told so.
  void run() {
    if (runner->list("").empty()) upload_and_create();
    look();
    work_off([this] { return faults_ == nullptr || !faults_->ended(); });
  }

  // The disk has room again, or fails for good.
  void go_on() {
    work_off([] { return true; });
  }

  void upload_and_create() {
    std::string input_id;
    const auto files = store->list("");
    if (files.empty()) {
      std::string lines = script_.input;
      for (int i = 0; i < script_.num_lines && script_.input.empty(); ++i) {
        lines += request_line(std::to_string(i), {{"prompt", "p"}});
      }
      const auto stored =
          store->add({.name = "in.jsonl", .purpose = "batch", .created = script_.now}, lines);
      if (!stored.ok()) return;
      uploaded = true;
      input_id = stored->id;
    } else {
      input_id = files.front().id;
    }
    runner->create({.input_file_id = input_id, .endpoint = "/v1/completions"},
                   [this](const BatchRunner::Shown& answer) {
                     created = std::holds_alternative<Json>(answer);
                     if (!created) refusal = std::get<ApiError>(answer);
                   });
  }

  std::function<void()> on_cancelled;  // called when the client is told so
  std::unique_ptr<FileStore> store;
  std::unique_ptr<BatchRunner> runner;
  bool uploaded = false;
  bool created = false;
  bool told_cancelled = false;
  ApiError refusal;  // of create(); the code is empty if it was not refused
  Json shown = Json::object();

 private:
  void work_off(const std::function<bool()>& may_wait) {
    while (!queue_.empty() || (!later_.empty() && may_wait())) {
      if (queue_.empty()) later_.swap(queue_);
      const std::function<void()> next = std::move(queue_.front());
      queue_.pop_front();
      next();
      look();
    }
  }

  void answer(std::shared_ptr<Exchange> own) {
    const bool fails = script_.fails_every_third && ++num_asked_ % 3 == 0;
    queue_.push_back([own = std::move(own), fails] {
      own->respond({.status = fails ? 400 : 200,
                    .headers = {},
                    .body = fails ? R"({"error":{"code":"invalid_value"}})" : R"({"text":"ok"})"});
    });
  }

  void look() {
    const Json all = runner->list("");
    if (all.empty()) return;
    shown = all[0];
    const Json& counts = shown["request_counts"];
    const int64_t count = counts["completed"].get<int64_t>() + counts["failed"].get<int64_t>();
    if (script_.cancel_after >= 0 && count >= script_.cancel_after &&
        num_cancels_ < script_.num_cancels) {
      ++num_cancels_;
      runner->cancel(shown["id"], "", [this](const BatchRunner::Shown& answer) {
        told_cancelled = std::holds_alternative<Json>(answer);
        if (told_cancelled && on_cancelled) on_cancelled();
      });
    }
  }

  const std::shared_ptr<StepsUntil> faults_;
  const Script script_;
  FakeEngine& engine_;
  std::deque<std::function<void()>> queue_;
  std::deque<std::function<void()>> later_;
  int num_asked_ = 0;
  int num_cancels_ = 0;
};

class EveryStepTest : public ::testing::Test {
 protected:
  EveryStepTest() {
    set_log_level(LogLevel::kOff);
    engine.mutable_memory_plan().max_running_requests = 6;
  }

  ~EveryStepTest() override { set_log_level(LogLevel::kInfo); }

  // Lives one life that ends after `num_steps`, and checks what it leaves. Returns whether it ended
  // before its work was done.
  bool live(int64_t num_steps, const Life::Script& script) {
    const auto faults = dead_after(num_steps);
    Life life(folder.path, faults, script, engine);
    life.run();
    check_promises(life);
    return faults->ended();
  }

  // A number that grows with the progress of a batch: 0 to 3, or 4 for one that has ended.
  static int progress_of(const std::string& status) {
    constexpr std::array<std::string_view, 4> kEarly = {"validating", "in_progress", "cancelling",
                                                        "finalizing"};
    return static_cast<int>(std::ranges::find(kEarly, status) - kEarly.begin());
  }

  // Everything that the client was told is on disk.
  void check_promises(const Life& life) {
    const std::vector<Json> records = folder.records();
    if (life.created || !last_id.empty()) {
      ASSERT_EQ(records.size(), 1u);
    }
    if (life.shown.empty()) return;
    const std::string id = life.shown["id"];
    if (!last_id.empty()) {
      EXPECT_EQ(id, last_id);
    }
    last_id = id;
    ASSERT_EQ(records.size(), 1u);
    const Json& record = records[0];
    const Json& counts = life.shown["request_counts"];
    const auto completed = counts["completed"].get<size_t>();
    const auto failed = counts["failed"].get<size_t>();
    EXPECT_GE(folder.ids_in(record["output_file_id"]).size(), completed);
    EXPECT_GE(folder.ids_in(record["error_file_id"]).size(), failed);
    EXPECT_GE(progress_of(record["status"]), progress_of(life.shown["status"]));
    if (life.told_cancelled) was_cancelled = true;
  }

  // A life without an end: the batch ends, and every id is there once.
  void check_the_end(const Life::Script& script, const std::string& status) {
    Life life(folder.path, nullptr, script, engine);
    life.run();
    check_promises(life);
    ASSERT_FALSE(life.shown.empty());
    if (status == "cancelled" && !was_cancelled && life.shown["status"] == "completed") {
      // The process ended before the client could ask, and another one does not know.
    } else {
      EXPECT_EQ(life.shown["status"], status) << life.shown.dump();
    }
    if (!script.input.empty()) return check_folder(life, 1);
    const Json record = folder.records()[0];
    std::vector<std::string> ids = folder.ids_in(record["output_file_id"]);
    EXPECT_EQ(std::ssize(ids), life.shown["request_counts"]["completed"].get<int64_t>());
    const std::vector<std::string> errors = folder.ids_in(record["error_file_id"]);
    if (life.shown["status"] == "completed") {
      EXPECT_EQ(std::ssize(errors), life.shown["request_counts"]["failed"].get<int64_t>());
    }
    EXPECT_EQ(life.shown.contains("output_file_id"), !ids.empty());
    EXPECT_EQ(life.shown.contains("error_file_id"), !errors.empty());
    const size_t num_outputs = (ids.empty() ? 0 : 1) + (errors.empty() ? 0 : 1);
    ids.insert(ids.end(), errors.begin(), errors.end());
    std::ranges::sort(ids);
    std::vector<std::string> expected;
    for (int i = 0; i < script.num_lines; ++i) expected.push_back(std::to_string(i));
    EXPECT_EQ(ids, expected);
    EXPECT_EQ(life.shown["request_counts"]["total"], script.num_lines);
    check_folder(life, 1 + num_outputs);
  }

  // Nothing else is on disk, and all of it is counted.
  void check_folder(const Life& life, size_t num_stored) {
    const auto stored = life.store->list("");
    // An upload that was not acknowledged may be there whole; its client uploads again.
    EXPECT_EQ(stored.size(), num_stored);
    int64_t num_bytes = 0;
    for (const StoredFile& file : stored) num_bytes += file.num_bytes;
    EXPECT_EQ(life.store->num_bytes(), num_bytes);
    EXPECT_EQ(folder.files().size(), 2 * stored.size() + 1);
  }

  void start_over() {
    folder.clear();
    last_id.clear();
    was_cancelled = false;
  }

  // Ends the process at every step, and twice at random ones.
  void end_everywhere(const Life::Script& script, const std::string& status) {
    int64_t num_steps = 0;
    for (;; ++num_steps) {
      SCOPED_TRACE(fmt::format("ended after {} steps", num_steps));
      start_over();
      const bool ended_early = live(num_steps, script);
      check_the_end(script, status);
      if (::testing::Test::HasFailure() || !ended_early) break;
    }
    EXPECT_GT(num_steps, 20);
    std::mt19937 random(7);
    const int num_rounds = testing::wants_everything() ? 2000 : 40;
    for (int round = 0; round < num_rounds && !::testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE(fmt::format("round {}", round));
      start_over();
      for (int i = 0; i < 3; ++i) {
        live(std::uniform_int_distribution<int64_t>(1, num_steps)(random), script);
      }
      check_the_end(script, status);
    }
  }

  const StorageFolderOfTest folder;
  FakeEngine engine;
  std::string last_id;
  bool was_cancelled = false;
};

TEST_F(EveryStepTest, ABatchIsCompleted) { end_everywhere({}, "completed"); }

TEST_F(EveryStepTest, ABatchIsCancelled) { end_everywhere({.cancel_after = 2}, "cancelled"); }

TEST_F(EveryStepTest, ABatchIsCancelledBeforeItBegins) {
  end_everywhere({.cancel_after = 0}, "cancelled");
}

TEST_F(EveryStepTest, ABatchOfAWrongFileFails) { end_everywhere({.input = "x\n"}, "failed"); }

TEST_F(EveryStepTest, ABatchExpiresWhileNoServerRuns) {
  int64_t num_steps = 0;
  for (bool ended_early = true; ended_early; ++num_steps) {
    SCOPED_TRACE(fmt::format("ended after {} steps", num_steps));
    start_over();
    ended_early = live(num_steps, {});
    const bool was_created = !last_id.empty();
    const bool was_done = was_created && folder.records()[0]["status"] == "completed";
    const bool had_all_answers =
        was_created && folder.ids_in(folder.records()[0]["output_file_id"]).size() +
                               folder.ids_in(folder.records()[0]["error_file_id"]).size() ==
                           5;
    const int64_t later = was_created ? BatchRunner::kWindowSeconds : 0;
    check_the_end(
        {.now = 1700000000 + later},
        was_done || !was_created || folder.records()[0]["status"] == "finalizing" || had_all_answers
            ? "completed"
            : "expired");
    if (HasFailure()) break;
  }
  EXPECT_GT(num_steps, 20);
}

// A torn line, lines of nobody, lines that are there twice, zeros that a power failure left.
TEST_F(EveryStepTest, OnlyWholeLinesOfTheBatchAreAnswers) {
  for (const std::string& garbage :
       {std::string("{\"custom_id\": \"4\", \"respo"), std::string("\n"), std::string(100, '\0'),
        std::string(100, '\0') + "\n", std::string(R"({"custom_id":"9","response":{}})") + "\n",
        std::string(R"({"custom_id":"0","response":{},"error":null})") + "\n" +
            R"({"custom_id":"0","response":{},"error":null})" + "\n"}) {
    SCOPED_TRACE(garbage);
    start_over();
    int64_t num_steps = 20;
    while (folder.records().empty() ||
           folder.ids_in(folder.records()[0]["output_file_id"]).empty()) {
      start_over();
      live(++num_steps, {.fails_every_third = false});
    }
    const std::string output = folder.records()[0]["output_file_id"];
    fs::resize_file(folder.path / output, folder.text_of(output).find('\n') + 1);
    std::ofstream(folder.path / output, std::ios::app | std::ios::binary) << garbage;
    last_id.clear();
    check_the_end({.fails_every_third = false}, "completed");
  }
}

TEST_F(EveryStepTest, FilesThatCannotBeTakenUpAreTriedAgain) {
  int64_t num_steps = 20;
  while (folder.records().empty() || folder.ids_in(folder.records()[0]["output_file_id"]).empty()) {
    start_over();
    live(++num_steps, {});
  }
  int num_failures = 3;
  const auto faults = std::make_shared<StepsUntil>(0, [&num_failures](DiskStep step) {
    return step == DiskStep::kRemove && num_failures-- > 0 ? EIO : 0;
  });
  {
    Life life(folder.path, faults, {}, engine);
    life.run();
    EXPECT_EQ(life.shown["status"], "in_progress");
    life.go_on();
    EXPECT_EQ(life.shown["status"], "completed");
  }
  check_the_end({}, "completed");
}

// A disk that fails for good after any step, for a reason that room does not cure.
TEST_F(EveryStepTest, ABatchThatCannotBeEndedOnDiskIsGivenUp) {
  int num_given_up = 0;
  bool was_refused = true;
  for (int64_t num_steps = 0; was_refused && !HasFailure(); ++num_steps) {
    SCOPED_TRACE(fmt::format("read-only after {} steps", num_steps));
    start_over();
    was_refused = false;
    {
      Life life(folder.path,
                std::make_shared<StepsUntil>(num_steps,
                                             [&was_refused](DiskStep) {
                                               was_refused = true;
                                               return EROFS;
                                             }),
                {}, engine);
      life.run();
      life.go_on();
      if (life.shown.empty()) {
        EXPECT_EQ(life.refusal.code, life.uploaded ? "storage_failed" : "");
        continue;
      }
      EXPECT_EQ(progress_of(life.shown["status"]), 4) << life.shown.dump();
      if (life.shown["status"] == "failed") {
        ++num_given_up;
        EXPECT_THAT(life.shown["errors"].dump(), HasSubstr("Read-only file system"));
      }
    }
    check_the_end({}, "completed");
  }
  EXPECT_GT(num_given_up, 10);
}

TEST_F(EveryStepTest, ABatchWhoseFilesCannotBeTakenUpLetsOthersRun) {
  int64_t num_steps = 20;
  while (folder.records().empty() || folder.ids_in(folder.records()[0]["output_file_id"]).empty()) {
    start_over();
    live(++num_steps, {});
  }
  bool is_broken = true;
  {
    Life life(folder.path,
              std::make_shared<StepsUntil>(0,
                                           [&is_broken](DiskStep step) {
                                             return is_broken && step == DiskStep::kRemove ? EIO
                                                                                           : 0;
                                           }),
              {}, engine);
    life.run();
    life.go_on();
    EXPECT_EQ(life.shown["status"], "failed");
    EXPECT_THAT(life.shown["errors"].dump(), HasSubstr("Input/output error"));
    is_broken = false;
    life.upload_and_create();
    life.go_on();
    EXPECT_EQ(life.shown["status"], "completed") << life.shown.dump();
  }
  Life next(folder.path, nullptr, {}, engine);
  next.go_on();
  for (const Json& batch : next.runner->list("")) EXPECT_EQ(batch["status"], "completed");
}

// The disk has room again while the server runs, or only after it was killed.
TEST_F(EveryStepTest, AFullDiskEndsABatchAndLosesNothingThatWasShown) {
  for (const int cancel_after : {-1, 0, 2}) {
    for (const bool is_killed : {false, true}) {
      int num_waited = 0;
      bool was_full = true;
      for (int64_t num_steps = 0; was_full && !HasFailure(); ++num_steps) {
        SCOPED_TRACE(fmt::format("full after {} steps, cancelled after {} answers, {}", num_steps,
                                 cancel_after, is_killed ? "killed" : "waits"));
        start_over();
        bool is_full = true;
        was_full = false;
        const auto faults = std::make_shared<StepsUntil>(num_steps, [&](DiskStep step) {
          was_full = was_full || is_full;
          const bool needs_none = step == DiskStep::kRemove || step == DiskStep::kTruncate;
          return is_full && !needs_none ? ENOSPC : 0;
        });
        auto life = std::make_unique<Life>(
            folder.path, faults, Life::Script{.cancel_after = cancel_after, .num_cancels = 30},
            engine);
        life->on_cancelled = [this] {
          const Json record = folder.records()[0];
          EXPECT_TRUE(record["cut_short"] != "" || progress_of(record["status"]) >= 3)
              << record.dump();
        };
        life->run();
        check_promises(*life);
        if (life->shown.empty()) {  // refused
          EXPECT_EQ(life->refusal.code, life->uploaded ? "storage_full" : "");
          EXPECT_TRUE(folder.records().empty());
          continue;
        }
        const bool had_ended = progress_of(life->shown["status"]) == 4;
        if (!had_ended) ++num_waited;
        if (life->shown.contains("errors")) {
          EXPECT_THAT(life->shown["errors"].dump(),
                      HasSubstr("No space left on device; make room"));
        }
        is_full = false;
        if (!is_killed) {
          life->go_on();
          check_promises(*life);
          EXPECT_EQ(progress_of(life->shown["status"]), 4) << life->shown.dump();
          EXPECT_EQ(life->shown["status"] == "failed", life->shown.contains("errors"));
        }
        const Json shown = life->shown;
        life = nullptr;
        if (is_killed && !had_ended) {
          // A cancellation may be on disk though its client was told that it is not.
          const bool is_cancelled = folder.records()[0]["cut_short"] != "";
          check_the_end({}, is_cancelled ? "cancelled" : "completed");
        } else {
          Life next(folder.path, nullptr, {}, engine);
          next.run();
          EXPECT_EQ(next.shown, shown);
          const Json record = folder.records()[0];
          const size_t num_lines = folder.ids_in(record["output_file_id"]).size() +
                                   folder.ids_in(record["error_file_id"]).size();
          const bool never_began = cancel_after == 0 && num_lines == 0;
          EXPECT_TRUE(num_lines == 5 || never_began) << shown.dump();
        }
      }
      EXPECT_GT(num_waited, 10);
    }
  }
}

// --- A real server -----------------------------------------------------------------------------

class BatchRestartTest : public ServerTest {
 protected:
  BatchRestartTest() {
    options.file_storage_path = folder.path.string();
    options.shutdown_timeout_seconds = 0;
  }

  ~BatchRestartTest() override { server.reset(); }  // before the folder

  void restart() {
    if (server != nullptr) server->shutdown();
    server.reset();
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start();
  }

  // Lines whose prompts are ever longer. Every `wrong`th one is refused.
  [[nodiscard]] std::string upload_lines(int num_lines, std::string_view headers = {},
                                         int wrong = 1000) const {
    std::string lines;
    for (int i = 0; i < num_lines; ++i) {
      Json body = {{"prompt", std::string(static_cast<size_t>(i) + 1, 'p')}};
      if ((i + 1) % wrong == 0) body["n"] = 0;
      lines += request_line(std::to_string(i), body);
    }
    const std::string form = fmt::format(
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{}\r\n"
        "--b--\r\n",
        lines);
    const Reply reply =
        connect().call("POST", "/v1/files", form,
                       fmt::format("Content-Type: multipart/form-data; boundary=b\r\n{}", headers));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["id"];
  }

  [[nodiscard]] std::string create(const std::string& input, std::string_view headers = {}) const {
    const Reply reply = connect().call(
        "POST", "/v1/batches",
        Json{{"input_file_id", input}, {"endpoint", "/v1/completions"}}.dump(), headers);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["id"];
  }

  [[nodiscard]] Json show(const std::string& id, std::string_view headers = {}) const {
    return connect().call("GET", "/v1/batches/" + id, {}, headers).json();
  }

  [[nodiscard]] Json wait_for(const std::string& id, std::string_view headers = {}) const {
    Json batch;
    EXPECT_TRUE(eventually([&] {
      batch = show(id, headers);
      const std::string status = batch.value("status", "");
      return status == "completed" || status == "failed" || status == "cancelled" ||
             status == "expired";
    })) << batch.dump();
    return batch;
  }

  // Answers prompts shorter than this, and holds the others.
  void answer_below(size_t length) {
    engine->script = [length](const Request& request) {
      if (request.prompt.size() < length) return answer_events({"Hello"});
      RequestEvent event;
      event.tokens = {1};
      event.text = "on ";
      return std::vector<RequestEvent>{event};
    };
  }

  void wait_for_completed(const std::string& id, int count, std::string_view headers = {}) const {
    EXPECT_TRUE(
        eventually([&] { return show(id, headers)["request_counts"]["completed"] == count; }));
  }

  // Every id of `num_lines` once, in both files together.
  void expect_every_id_once(const Json& batch, int num_lines) const {
    std::vector<std::string> ids;
    for (const char* name : {"output_file_id", "error_file_id"}) {
      if (!batch.contains(name)) continue;
      for (std::string& id : folder.ids_in(batch[name])) ids.push_back(std::move(id));
    }
    std::ranges::sort(ids);
    std::vector<std::string> expected;
    for (int i = 0; i < num_lines; ++i) expected.push_back(std::to_string(i));
    std::ranges::sort(expected);
    EXPECT_EQ(ids, expected);
  }

  const StorageFolderOfTest folder;
};

TEST_F(BatchRestartTest, AShutdownLosesNoAnswerAndFailsNoRequest) {
  engine->mutable_memory_plan().max_running_requests = 8;
  answer_below(4);
  start();
  const std::string id = create(upload_lines(8));
  wait_for_completed(id, 3);
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 4; }));
  const Json before = show(id);
  EXPECT_EQ(before["status"], "in_progress");
  EXPECT_EQ(server->shutdown(), 4);
  EXPECT_EQ(folder.records()[0]["status"], "in_progress");
  restart();
  EXPECT_GE(show(id)["request_counts"]["completed"], 3) << "counted before it goes on";
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["created_at"], before["created_at"]);
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 8}, {"completed", 8}, {"failed", 0}}));
  EXPECT_EQ(engine->submitted().size(), 5u) << "those without an answer";
  expect_every_id_once(batch, 8);
  restart();
  EXPECT_EQ(show(id), batch) << "an ended one is shown as it was";
  EXPECT_EQ(get("/v1/files").json()["data"].size(), 2u);
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(BatchRestartTest, BatchesThatWaitGoOnInTheirOrderAsTheLeastUrgent) {
  engine->held = true;
  start();
  const std::string input = upload_lines(1);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(create(input));
  server->shutdown();
  server.reset();
  engine_to_be = std::make_unique<FakeEngine>();
  engine = engine_to_be.get();
  engine->mutable_options().scheduling.enable_priority = true;
  engine->held = true;
  start();
  ASSERT_TRUE(eventually([&] { return show(ids[0])["status"] == "in_progress"; }));
  EXPECT_EQ(show(ids[1])["status"], "validating");
  EXPECT_EQ(get("/v1/batches").json()["first_id"], ids[2]) << "the newest first";
  engine->held = false;
  for (const std::string& id : ids) EXPECT_EQ(wait_for(id)["status"], "completed");
  for (const Request& request : engine->submitted()) EXPECT_LT(request.priority, -1000000);
}

ApiKey key_of(const std::string& name, std::vector<std::string> models = {}) {
  ApiKey key;
  key.secret = name + "-secret";
  key.name = name;
  key.models = std::move(models);
  return key;
}

constexpr std::string_view kAsAlice = "x-api-key: alice-secret\r\n";
constexpr std::string_view kAsBob = "x-api-key: bob-secret\r\n";

TEST_F(BatchRestartTest, ABatchHasItsKeyAgain) {
  options.api_keys = {key_of("alice")};
  answer_below(2);
  start();
  const std::string id = create(upload_lines(2, kAsAlice), kAsAlice);
  wait_for_completed(id, 1, kAsAlice);
  options.api_keys = {key_of("bob"), key_of("alice")};
  restart();
  EXPECT_EQ(wait_for(id, kAsAlice)["status"], "completed");
  EXPECT_EQ(engine->submitted().at(0).tenant, "alice");
  EXPECT_EQ(show(id, kAsBob)["error"]["code"], "batch_not_found");
}

TEST_F(BatchRestartTest, ABatchWhoseKeyIsGoneOrMayNotUseTheModelFails) {
  for (const bool is_gone : {true, false}) {
    SCOPED_TRACE(is_gone);
    server.reset();
    folder.clear();
    options.api_keys = {key_of("alice"), key_of("bob")};
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    answer_below(2);
    start();
    const std::string id = create(upload_lines(2, kAsBob), kAsBob);
    wait_for_completed(id, 1, kAsBob);
    options.api_keys = {key_of("alice"), is_gone ? key_of("carol") : key_of("bob", {"x"})};
    restart();
    ASSERT_TRUE(eventually(
        [&] { return Json::parse(folder.text_of(id + ".json"))["status"] == "failed"; }));
    options.api_keys = {key_of("alice"), key_of("bob")};
    restart();
    const Json failed = show(id, kAsBob);
    EXPECT_EQ(failed["status"], "failed");
    EXPECT_THAT(failed["errors"].dump(),
                HasSubstr(is_gone ? "no API key of bob"
                                  : "key of bob, to which the batch belongs, "
                                    "may not use m"));
    EXPECT_EQ(failed["request_counts"]["completed"], 1);
    expect_every_id_once(failed, 2);
    EXPECT_TRUE(engine->submitted().empty());
  }
}

TEST_F(BatchRestartTest, ABatchOfAnotherModelFailsAndKeepsItsAnswers) {
  answer_below(2);
  start();
  const std::string id = create(upload_lines(3));
  wait_for_completed(id, 1);
  options.served_model_names = {"other", "another"};
  restart();
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_THAT(batch["errors"].dump(),
              HasSubstr("model `m`, and this server serves other, another"));
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 3}, {"completed", 1}, {"failed", 0}}));
  expect_every_id_once(batch, 3);
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(BatchRestartTest, ABatchWithoutItsInputFailsAndKeepsItsAnswers) {
  answer_below(2);
  start();
  const std::string input = upload_lines(3);
  const std::string id = create(input);
  wait_for_completed(id, 1);
  EXPECT_EQ(connect().call("DELETE", "/v1/files/" + input).status, 200);
  restart();
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_THAT(batch["errors"].dump(), HasSubstr(input));
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 3}, {"completed", 1}, {"failed", 0}}));
  EXPECT_EQ(folder.ids_in(batch["output_file_id"]), std::vector<std::string>{"0"});
}

TEST_F(BatchRestartTest, AnEngineThatIsOutOfOrderFailsNoRequest) {
  start();
  engine->set_health(internal_error("device lost"));
  engine->set_refuse([](const Request&) { return internal_error("device lost"); });
  const std::string id = create(upload_lines(2));
  ASSERT_TRUE(eventually([&] { return show(id)["status"] == "in_progress"; }));
  engine->set_refuse(nullptr);
  engine->set_health(ok_status());
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 2}, {"completed", 2}, {"failed", 0}}));
}

TEST_F(BatchRestartTest, WithoutAFolderNothingStays) {
  options.file_storage_path.clear();
  start();
  const std::string id = create(upload_lines(1));
  EXPECT_EQ(wait_for(id)["status"], "completed");
  restart();
  EXPECT_EQ(show(id)["error"]["code"], "batch_not_found");
  EXPECT_TRUE(folder.files().empty());
}

TEST_F(BatchRestartTest, TwoServersDoNotShareAFolder) {
  start();
  options.http.port = 0;
  const auto second = Server::listen(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("--file-storage-path"));
  EXPECT_THAT(second.status().message(), HasSubstr(folder.path.string()));
  EXPECT_THAT(second.status().message(), HasSubstr(fmt::format("(process {})", ::getpid())));
  EXPECT_THAT(second.status().message(), HasSubstr("give this one another folder"));
  server->shutdown();
  server.reset();
  EXPECT_TRUE(Server::listen(options).ok());
}

TEST_F(BatchRestartTest, FilesAreThisUsersAlone) {
  const mode_t before = ::umask(0);
  options.file_storage_path = (folder.path / "made" / "below").string();
  start();
  const Json batch = wait_for(create(upload_lines(2)));
  ::umask(before);
  EXPECT_EQ(batch["status"], "completed");
  const auto mode_of = [](const fs::path& path) { return fs::status(path).permissions(); };
  EXPECT_EQ(mode_of(folder.path), fs::perms::owner_all);
  EXPECT_EQ(mode_of(folder.path / "made"), fs::perms::owner_all);
  EXPECT_EQ(mode_of(folder.path / "made/below"), fs::perms::owner_all);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder.path / "made/below")) {
    EXPECT_EQ(mode_of(entry.path()), fs::perms::owner_read | fs::perms::owner_write)
        << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 6) << "two files, their descriptions, the record, the lock";
}

// Other files of this process stay below the limit.
TEST_F(BatchRestartTest, ALimitOfTheFileSizeEndsTheBatchAndLosesNothing) {
  start();
  const std::string input = upload_lines(12);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 3000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string id = create(input);
  const Json batch = wait_for(id);
  const std::string large(8000, 'x');
  const Reply refused = connect().call(
      "POST", "/v1/files",
      fmt::format(
          "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
          "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n"
          "--b--\r\n",
          large),
      "Content-Type: multipart/form-data; boundary=b\r\n");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr("File too large"));
  EXPECT_EQ(batch["status"], "failed") << batch.dump();
  EXPECT_THAT(batch["errors"].dump(), HasSubstr("File too large"));
  const auto ids = folder.ids_in(batch["output_file_id"]);
  EXPECT_GT(ids.size(), 0u);
  EXPECT_LT(ids.size(), 12u);
  EXPECT_EQ(batch["request_counts"]["completed"], ids.size());
  EXPECT_EQ(show(id), batch);
  restart();
  EXPECT_EQ(show(id), batch);
  EXPECT_EQ(folder.files().size(), 7u) << "input, output, errors, and the record";
}

TEST_F(BatchRestartTest, OneKeyCannotUseTheBatchesOfAll) {
  options.api_keys = {key_of("alice"), key_of("bob")};
  engine->held = true;
  start();
  const std::string input = upload_lines(1, kAsAlice);
  for (size_t i = 0; i < BatchRunner::kMaxUnfinished / 4; ++i) {
    static_cast<void>(create(input, kAsAlice));
  }
  const Reply refused = connect().call(
      "POST", "/v1/batches", Json{{"input_file_id", input}, {"endpoint", "/v1/completions"}}.dump(),
      kAsAlice);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(error_of(refused)["code"], "batch_queue_full");
  EXPECT_THAT(refused.body, HasSubstr("16 of your batches run or wait"));
  static_cast<void>(create(upload_lines(1, kAsBob), kAsBob));
}

TEST_F(BatchRestartTest, ThousandsOfFilesAndBatchesAreFoundQuickly) {
  start();
  const std::string input = upload_lines(1);
  const std::string id = create(input);
  ASSERT_EQ(wait_for(id)["status"], "completed");
  server->shutdown();
  server.reset();
  const std::string record = folder.text_of(id + ".json");
  const std::string description = folder.text_of(input + ".json");
  for (int i = 0; i < 3000; ++i) {
    const std::string digits = fmt::format("{:032x}", i);
    std::ofstream(folder.path / ("file-" + digits)) << "x";
    std::ofstream(folder.path / ("file-" + digits + ".json")) << description;
    if (i < 900) std::ofstream(folder.path / ("batch_" + digits + ".json")) << record;
  }
  const auto begin = std::chrono::steady_clock::now();
  restart();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 20) << "a sanitized run on a busy machine; else a tenth of a second";
  EXPECT_EQ(get("/v1/files?limit=10000").json()["data"].size(), 3002u);
  EXPECT_EQ(show("batch_" + fmt::format("{:032x}", 899))["status"], "completed");
}

// --- kill -9 -----------------------------------------------------------------------------------

// A server in a process of its own. It ends itself with SIGKILL at a step; see BatchKillTest.
constexpr const char* kChildFolder = "HEDDLE_BATCH_CHILD_FOLDER";
constexpr const char* kChildStep = "HEDDLE_BATCH_CHILD_STEP";
constexpr const char* kChildPipe = "HEDDLE_BATCH_CHILD_PIPE";
constexpr int kChildLines = 30;

class BatchKillChild : public BatchRestartTest {};

// Serves a batch to its end and writes a line to the pipe for each time that the batch was shown:
// "ID COMPLETED FAILED STATUS".
TEST_F(BatchKillChild, DISABLED_Serves) {
  const char* const path = std::getenv(kChildFolder);
  ASSERT_NE(path, nullptr) << "this is no test of its own";
  options.file_storage_path = path;
  options.disk_faults =
      std::make_shared<StepsUntil>(std::atoll(std::getenv(kChildStep)), [](DiskStep) {
        ::kill(::getpid(), SIGKILL);
        return EIO;
      });
  engine->mutable_memory_plan().max_running_requests = 8;
  start();
  const int pipe = std::atoi(std::getenv(kChildPipe));
  Json batches = get("/v1/batches").json()["data"];
  if (batches.empty()) {
    const Json files = get("/v1/files").json()["data"];
    static_cast<void>(create(files.empty() ? upload_lines(kChildLines, {}, 4)
                                           : files[0]["id"].get<std::string>()));
    batches = get("/v1/batches").json()["data"];
  }
  const std::string id = batches[0]["id"];
  for (std::string status; status != "completed" && status != "failed";) {
    const Json batch = show(id);
    status = batch["status"];
    const std::string line =
        fmt::format("{} {} {} {}\n", id, batch["request_counts"]["completed"].get<int>(),
                    batch["request_counts"]["failed"].get<int>(), status);
    ASSERT_EQ(::write(pipe, line.data(), line.size()), std::ssize(line));
  }
}

class BatchKillTest : public ::testing::Test {
 protected:
  struct Seen {
    bool killed = false;
    std::string id;
    size_t num_completed = 0;
    size_t num_failed = 0;
    std::string status;
  };

  // Starts a server that ends itself at a step, and is killed after `num_shown` lines from it.
  [[nodiscard]] Seen serve(int64_t step, int num_shown) const {
    int ends[2] = {};
    EXPECT_EQ(::pipe2(ends, 0), 0);
    EXPECT_EQ(::fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    std::vector<std::string> environment = {
        fmt::format("{}={}", kChildFolder, folder.path.string()),
        fmt::format("{}={}", kChildStep, step), fmt::format("{}={}", kChildPipe, ends[1])};
    for (char** variable = environ; *variable != nullptr; ++variable) {
      // A shard or a report of the parent's are not the child's.
      if (!std::string_view(*variable).starts_with("GTEST_")) environment.emplace_back(*variable);
    }
    std::vector<std::string> arguments = {"child", "--gtest_filter=BatchKillChild.*",
                                          "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    EXPECT_EQ(::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers(arguments).data(),
                            pointers(environment).data()),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    Seen seen;
    std::FILE* const lines = ::fdopen(ends[0], "r");
    char text[256];
    for (int i = 0; std::fgets(text, sizeof(text), lines) != nullptr; ++i) {
      std::istringstream(text) >> seen.id >> seen.num_completed >> seen.num_failed >> seen.status;
      if (i == num_shown) ::kill(child, SIGKILL);
    }
    std::fclose(lines);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    seen.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(seen.killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    return seen;
  }

  // Every answer that the client saw is in the files, and nothing is there twice.
  void check(const Seen& seen) const {
    if (seen.id.empty()) return;
    const Json record = Json::parse(folder.text_of(seen.id + ".json"));
    auto ids = folder.ids_in(record["output_file_id"]);
    EXPECT_GE(ids.size(), seen.num_completed);
    const auto errors = folder.ids_in(record["error_file_id"]);
    EXPECT_GE(errors.size(), seen.num_failed);
    ids.insert(ids.end(), errors.begin(), errors.end());
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
    if (seen.status != "completed") return;
    EXPECT_EQ(ids.size(), static_cast<size_t>(kChildLines));
    EXPECT_EQ(seen.num_completed + seen.num_failed, static_cast<size_t>(kChildLines));
  }

  const StorageFolderOfTest folder;
};

TEST_F(BatchKillTest, NoRequestIsLostOrAnsweredTwice) {
  const int num_kills = testing::wants_everything() ? 1000 : 20;
  std::mt19937 random(11);
  const auto draw = [&random](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int num_killed = 0;
  int num_ended = 0;
  while (num_killed < num_kills && !HasFailure()) {
    SCOPED_TRACE(fmt::format("after {} kills", num_killed));
    // Half of them end themselves at a step, the others when the batch has been shown so often.
    const bool at_step = draw(0, 1) == 0;
    const Seen seen = serve(at_step ? draw(1, 120) : 1'000'000, at_step ? -1 : draw(0, 60));
    check(seen);
    if (seen.killed) ++num_killed;
    if (!seen.killed || seen.status == "completed") {
      EXPECT_EQ(seen.status, "completed");
      ++num_ended;
      folder.clear();
    }
  }
  const Seen last = serve(1'000'000, -1);
  EXPECT_EQ(last.status, "completed");
  check(last);
  RecordProperty("ended", num_ended);
}

}  // namespace
}  // namespace heddle::server
