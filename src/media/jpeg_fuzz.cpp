// SPDX-License-Identifier: Apache-2.0
// Fuzzes the JPEG decoder with any bytes.
#include "media/decode_fuzz_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::media::testing::check_decode(heddle::media::ImageFormat::kJpeg, {data, size});
  return 0;
}
