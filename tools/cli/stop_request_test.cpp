// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/stop_request.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tools/cli/terminal.h"

namespace heddle::tools {
namespace {

// Shuts down on request, as a server does that waits for a client.
class SlowServer final : public server::Server {
 public:
  explicit SlowServer(bool answers_at_once) : may_finish_(answers_at_once) {}

  [[nodiscard]] uint16_t port() const override { return 0; }

  [[nodiscard]] std::string address() const override { return ""; }

  void set_load_progress(int64_t, int64_t) override {}

  void start_serving(std::unique_ptr<Engine>, std::unique_ptr<server::TextCodec>,
                     nlohmann::ordered_json, std::vector<server::ServedAdapter>) override {}

  [[nodiscard]] bool reads_keys_again() const override { return true; }

  [[nodiscard]] Status reload_keys() override {
    ++num_reloads_;
    num_reloads_.notify_all();
    return ok_status();
  }

  void announce_shutdown(double) override {}

  void wait_for_reload() { num_reloads_.wait(0); }

  int64_t shutdown() override {
    began_ = true;
    began_.notify_all();
    may_finish_.wait(false);
    return 0;
  }

  void wait_for_shutdown() { began_.wait(false); }

 private:
  std::atomic<bool> began_{false};
  std::atomic<bool> may_finish_;
  std::atomic<int> num_reloads_{0};
};

// A process of its own: signals are everybody's, and these end it.
class StopRequestDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void send(int signal) { kill(getpid(), signal); }
};

TEST_F(StopRequestDeathTest, ASignalWhileLoadingEndsTheProcessOnceTheServerIsDown) {
  const auto load = [] {
    interrupts();
    SlowServer server(/*answers_at_once=*/true);
    StopRequest stop(server);
    send(SIGINT);
    server.wait_for_shutdown();
    stop.loaded();
    _exit(3);  // a server that was asked to stop does not begin to serve
  };
  EXPECT_EXIT(load(), ::testing::ExitedWithCode(0), "");
}

TEST_F(StopRequestDeathTest, ASecondSignalWhileTheFirstIsObeyedEndsTheProcessAtOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto load = [signal] {
      interrupts();
      SlowServer server(/*answers_at_once=*/false);
      StopRequest stop(server);
      send(signal);
      server.wait_for_shutdown();
      send(signal);
      stop.loaded();
      _exit(3);
    };
    EXPECT_EXIT(load(), ::testing::ExitedWithCode(128 + signal), "");
  }
}

TEST_F(StopRequestDeathTest, ALoadThatFailsMeanwhileEndsNoSooner) {
  const auto load = [] {
    interrupts();
    SlowServer server(/*answers_at_once=*/false);
    {
      StopRequest stop(server);
      send(SIGTERM);
      server.wait_for_shutdown();
      std::thread([] { send(SIGTERM); }).detach();
    }
    _exit(3);
  };
  EXPECT_EXIT(load(), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST_F(StopRequestDeathTest, OnceLoadedASignalEndsTheWaitAndASecondTheProcess) {
  const auto serve = [] {
    interrupts();
    SlowServer server(/*answers_at_once=*/true);
    StopRequest stop(server);
    stop.loaded();
    send(SIGINT);
    if (stop.wait() != SIGINT) _exit(3);
    send(SIGINT);
    pause();
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(130), "");
}

TEST_F(StopRequestDeathTest, AnEngineThatFailsEndsTheWaitWithoutASignal) {
  const auto serve = [] {
    interrupts();
    SlowServer server(/*answers_at_once=*/true);
    StopRequest stop(server);
    stop.loaded();
    std::thread([&stop] { stop.engine_failed(); }).join();
    _exit(stop.wait() == 0 ? 0 : 3);
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(0), "");
}

TEST_F(StopRequestDeathTest, AHangupReadsTheKeysAgainAndEndsNothing) {
  const auto serve = [] {
    interrupts();
    SlowServer server(/*answers_at_once=*/true);
    StopRequest stop(server);
    stop.loaded();
    send(SIGHUP);
    server.wait_for_reload();
    send(SIGTERM);
    _exit(stop.wait() == SIGTERM ? 0 : 3);
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace heddle::tools
