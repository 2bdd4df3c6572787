// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary bytes and renders them over a small conversation under tight limits: nothing may
// crash, leak or take long.
#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "chat/json.h"
#include "chat/template.h"

namespace {

const heddle::chat::Value& context() {
  static const heddle::chat::Value kContext =
      heddle::chat::value_from_json(
          nlohmann::ordered_json::parse(
              R"({"messages": [{"role": "user", "content": "Hé"}, {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}],
                  "tools": null, "l": [3, 1, 2], "d": {"a": 1, "b": [1.5]}, "s": "a b,c\n日本", "n": 7,
                  "add_generation_prompt": true})"))
          .value();
  return kContext;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::chat::ParseOptions options;
  options.limits = {.max_source_bytes = 4096,
                    .max_nesting_depth = 60,
                    .max_steps = 20'000,
                    .max_output_bytes = 1 << 16,
                    .max_memory_bytes = 1 << 20,
                    .max_recursion_depth = 120};
  const auto parsed = heddle::chat::Template::parse(
      std::string(reinterpret_cast<const char*>(data), size), "fuzz", options);
  if (!parsed.ok()) return 0;
  std::tm today{};
  today.tm_mday = 1;
  (void)parsed.value().render(context(), options.limits, [today] { return today; });
  return 0;
}
