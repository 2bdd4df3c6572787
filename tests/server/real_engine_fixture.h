// SPDX-License-Identifier: Apache-2.0
// A real server and a real engine with the small model.
#pragma once

#include <utility>

#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {

class RealEngineFixture : public ServerTest {
 protected:
  // Change them before start_real(). Without drafts, so that equal requests have steps of equally
  // many rows, and answers that are equal to the bit.
  EngineOptions engine_options{.model_dir = testing::repository_path("models/heddle-tiny"),
                               .num_threads = 1,
                               .max_running_requests = 2,
                               .max_total_tokens = 4096,
                               .max_queued_requests = 4,
                               .speculative = {.algorithm = DraftAlgorithm::kNone}};

  void start_real() {
    listen();
    auto created = Engine::create(engine_options);
    ASSERT_TRUE(created.ok()) << created.status().to_string();
    auto codec = make_model_codec(engine_options.model_dir, *(*created)->tokenizer(), {});
    ASSERT_TRUE(codec.ok()) << codec.status().to_string();
    server->start_serving(std::move(created).value(), std::move(codec).value(), Json::object());
  }
};

}  // namespace heddle::server
