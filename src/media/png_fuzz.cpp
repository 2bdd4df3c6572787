// SPDX-License-Identifier: Apache-2.0
// Fuzzes the PNG decoder with any bytes.
#include "media/decode_fuzz_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::media::testing::check_decode(heddle::media::ImageFormat::kPng, {data, size});
  return 0;
}
