// SPDX-License-Identifier: Apache-2.0
// Any bytes as a JPEG file.
#include "media/decode_fuzz_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::media::testing::check_decode(heddle::media::ImageFormat::kJpeg, {data, size});
  return 0;
}
