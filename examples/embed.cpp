// SPDX-License-Identifier: Apache-2.0
// Embeds the engine: loads a model, goes on from a text and prints the answer as it is drawn.
//
//   heddle_embed_example models/heddle-tiny "Once upon a time"
#include <cstdio>
#include <future>
#include <string_view>

#include <heddle/engine.h>

int fail(const heddle::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3)
    return fail(heddle::invalid_argument("usage: heddle_embed_example MODEL_DIR TEXT"));
  auto engine = heddle::Engine::create({.model_dir = argv[1]});
  if (!engine.ok()) return fail(engine.status());
  auto prompt = (*engine)->encode(argv[2]);
  if (!prompt.ok()) return fail(prompt.status());

  heddle::Request request{.id = "1", .prompt = *prompt};
  request.sampling.temperature = 0;  // always the most likely token
  request.stop.max_new_tokens = 32;

  // Events come on the engine's thread, the last one with `finish`.
  std::promise<heddle::Finish> finished;
  const auto on_event = [&finished](const heddle::RequestEvent& event) {
    std::fputs(event.text.c_str(), stdout);
    std::fflush(stdout);
    if (event.finish) finished.set_value(*event.finish);
  };
  const heddle::Status submitted = (*engine)->submit(std::move(request), on_event);
  if (!submitted.ok()) return fail(submitted);
  const heddle::Finish finish = finished.get_future().get();
  std::puts("");
  return finish.error.ok() ? 0 : fail(finish.error);
}
