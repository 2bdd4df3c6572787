// SPDX-License-Identifier: Apache-2.0
// Fuzzes the EXIF reader with any bytes.
#include "core/check.h"
#include "media/exif.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int orientation = heddle::media::exif_orientation({data, size});
  HEDDLE_CHECK(orientation >= 1 && orientation <= 8);
  return 0;
}
