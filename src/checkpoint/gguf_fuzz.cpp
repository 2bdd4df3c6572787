// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: parsing must end in a header whose every tensor lies inside the file
// and whose every value can be asked for.
#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"
#include "checkpoint/gguf_header.h"
#include "core/check.h"

namespace {

using namespace heddle::checkpoint;

void check(std::span<const std::byte> file) {
  const heddle::Result<GgufHeader> header = parse_gguf_header(file);
  if (!header.ok()) return;
  for (const GgufTensor& tensor : header->tensors) {
    HEDDLE_CHECK(tensor.begin >= 0 && tensor.begin < tensor.end);
    HEDDLE_CHECK_LE(header->data_offset + tensor.end, static_cast<int64_t>(file.size()));
    const auto [columns, bytes] = tensor.type->block;
    HEDDLE_CHECK_EQ(tensor.shape.num_elements() / columns * bytes, tensor.end - tensor.begin);
  }
  size_t total = 0;
  for (const auto& [key, value] : header->metadata.values()) {
    const auto texts = header->metadata.texts(key);
    if (texts.ok()) {
      for (const std::string_view text : **texts) total += text.size();
    }
    const auto numbers = header->metadata.numbers(key);
    if (numbers.ok()) total += (*numbers)->size();
    const auto text = header->metadata.text(key);
    if (text.ok()) total += (*text)->size();
    // The type of a value decides which getters read it; the empty array is of every type.
    if (value.count > 0) {
      HEDDLE_CHECK_EQ(texts.ok(), value.type == GgufValueType::kString);
      HEDDLE_CHECK_EQ(header->metadata.booleans(key).ok(), value.type == GgufValueType::kBool);
      HEDDLE_CHECK_EQ(text.ok(), texts.ok() && !value.is_array);
    }
  }
  HEDDLE_CHECK_LE(total, 8 * file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  // Also as metadata of a file with a valid header, and as its tensors.
  using heddle::checkpoint::testing::GgufWriter;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto begun = [&](uint64_t tensors, uint64_t entries) {
    GgufWriter writer;
    writer.text("general.architecture", "model");
    writer.claim(tensors, entries);
    std::string file = writer.file();
    file.resize(8 + 16 + 8 + 20 + 4 + 8 + 5);  // without the padding
    return file + text;
  };
  check(heddle::checkpoint::testing::as_bytes(begun(0, 1 + size % 3)));
  check(heddle::checkpoint::testing::as_bytes(begun(1 + size % 3, 0)));
  return 0;
}
