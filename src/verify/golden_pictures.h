// SPDX-License-Identifier: Apache-2.0
// Encodes the recorded pictures of golden cases.
//
// Threading: confined, as the encoder is.
#pragma once

#include <heddle/status.h>

#include "runner/program/vision_encoder.h"
#include "verify/golden_cases.h"

namespace heddle::verify {

// Encodes the case's recorded pictures and finds their tokens in the prompt: each picture has the
// next run of placeholder ids. Does nothing for cases without pictures. Errors: those of
// VisionEncoder::encode(); kInvalidArgument, naming the case, if runs and pictures do not match;
// kDataLoss if the positions of the tokens differ from the recorded ones.
Status encode_pictures(runner::VisionEncoder& encoder, GoldenCase& golden);

}  // namespace heddle::verify
