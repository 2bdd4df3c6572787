// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/rotate_append.h"

namespace heddle::ops {

bool rotate_append_fits(const RotateAppendArgs& args) {
  const RopeArgs &q = args.q, &k = args.k;
  const PagedAttentionArgs& attention = args.attention;
  const auto same = [](const TensorView& a, const TensorView& b) { return a.data == b.data; };
  return attention.v.data != nullptr && attention.kv.v.data != nullptr &&
         q.head_dim == attention.head_dim && k.head_dim == attention.head_dim &&
         (attention.value_dim == 0 || attention.value_dim == attention.head_dim) &&
         same(q.positions, k.positions) && same(q.inverse_frequencies, k.inverse_frequencies) &&
         q.first_channel == k.first_channel && q.interleaved == k.interleaved &&
         q.factor == k.factor;
}

}  // namespace heddle::ops
