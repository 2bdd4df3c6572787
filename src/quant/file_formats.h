// SPDX-License-Identifier: Apache-2.0
// The layouts of quantised matrices in checkpoint files, and functions that read them. A
// StoredMatrix refers to the tensors of one module. Its row format follows from their shapes alone,
// so memory can be planned before anything is read.
//
//   kAwq            qweight i32 [K, N/8], qzeros i32 [K/G, N/8], scales [K/G, N]. Nibble i of a
//   word
//                   is column 0,2,4,6,1,3,5,7 of its eight. W = (q - z) * s.
//   kGptq           qweight i32 [K/f, N], qzeros i32 [K/G, N/f], scales [K/G, N], g_idx i32 [K];
//                   f = 32 / bits, in order. Version 1 stores z - 1. Frantar et al.,
//                   arXiv:2210.17323
//   kPackQuantized  weight_packed i32 [N, K/f] with an offset of 2^(bits-1), weight_scale [N, K/G],
//                   zero points packed along N
//   kE4M3           weight [N, K]; scale: one number, one a row, or one a block of rows and
//                   columns. Codes of E8M0 (u8) are read as the powers of two that they are
//   kInt8           weight i8 [N, K], symmetric; scale: one number or one a row
//   kMxfp4          blocks u8 [N.., K/32, 16] or [N, K/2], low nibble first; scales u8 [N.., K/32],
//                   powers of two
//   kNvfp4          weight u8 [N, K/2], low nibble first; scale E4M3 [N, K/16], the last group of a
//                   row may be partial; one fp32 factor that all scales are multiplied by
//                   (ModelOpt) or divided by (compressed-tensors)
//   kBlocks         a matrix of a GGUF file, codes and scales together (block_formats.h)
//
// The experts of a layer may be stored in one tensor: matrices [E, N/E, K] of kE4M3, kInt8 and
// kNvfp4, with scales (and factors) for each. If a code is a byte, the matrices may be transposed,
// [E, K, N/E], with transposed scales.
//
// Packed words are unsigned, whatever dtype the file declares. Data need not be aligned.
#pragma once

#include <cstdint>

#include <heddle/status.h>

#include "quant/block_formats.h"
#include "quant/packed_rows.h"

namespace heddle::quant {

enum class FileLayout : uint8_t {
  kAwq,
  kGptq,
  kPackQuantized,
  kE4M3,
  kInt8,
  kMxfp4,
  kNvfp4,
  kBlocks
};

[[nodiscard]] const char* to_string(FileLayout layout);  // name for messages: "AWQ", ...

struct StoredMatrix {
  FileLayout layout = FileLayout::kInt8;
  int64_t N = 0;  // number of rows; if one tensor contains all experts, of all of them
  int64_t K = 0;
  int64_t num_experts = 0;      // size of the first dimension; 0: the matrix has no expert
                                // dimension
  bool input_major = false;     // the experts' matrices are stored transposed, [E, K, N/E]
  int bits = 4;                 // bits of a code in kGptq and kPackQuantized
  bool zeros_less_one = false;  // kGptq version 1: the stored zero points are one less than the
                                // real ones
  bool symmetric = false;       // kGptq: the config declares that all zero points are 2^(bits-1)
  int64_t block_rows = 128;     // rows that share a block scale, for kE4M3 with block scales
  int64_t block_columns = 128;

  TensorView codes;
  TensorView scales;
  TensorView zeros;        // zero points, if the file has them
  TensorView group_index;  // the group of each of the K columns, if the file has it
  TensorView factors;      // kNvfp4: one factor, or one per expert
  bool divided = false;    // kNvfp4: scales are divided by the factors instead of multiplied
  BlockRows blocks;        // only for kBlocks, which has none of the tensors above
  bool on_gpu = false;     // kBlocks: whether a GPU reads the packed rows (packed_format())
};

// Checks every shape and dtype, and reads the group index. Error: kInvalidArgument, naming the
// tensor and what it should be.
Result<RowFormat> row_format(const StoredMatrix& matrix);

// Unpacks a matrix. Error: kDataLoss for scales or codes that are not finite, for zero points other
// than those that the config declares, and for factors that are not positive and finite. Memory:
// one byte a code. Cost: about a nanosecond a code on one thread.
Result<UnpackedMatrix> unpack(const StoredMatrix& matrix, const RowFormat& format);

// The tensors of an AWQ module, made from a matrix of code kU4 with zero points, fp16 scales and a
// number of rows that is a multiple of eight. unpack() returns the same matrix.
struct AwqTensors {
  std::vector<uint32_t> qweight;  // [K, N/8]
  std::vector<uint32_t> qzeros;   // [K/G, N/8]
  std::vector<uint16_t> scales;   // [K/G, N]
};

[[nodiscard]] AwqTensors pack_awq(const UnpackedMatrix& matrix);

}  // namespace heddle::quant
