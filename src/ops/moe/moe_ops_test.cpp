// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/moe_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::ops {

namespace {

using ::testing::HasSubstr;

TEST(MoeOpsTest, WantABiasForEveryRowOfEveryExpert) {
  const OpDef& op = moe_ops()[1];
  ASSERT_EQ(op.name, "routed_moe_bias");
  const auto T = SymbolicDim::of(Symbol::kTokens);
  const auto H = SymbolicDim::fixed(16), E = SymbolicDim::fixed(4), I = SymbolicDim::fixed(8);
  const auto I2 = SymbolicDim::fixed(16);
  const auto floats = [](std::initializer_list<SymbolicDim> shape) {
    return TensorMeta(DType::kF32, shape);
  };
  const Attrs attrs{{"top_k", 2}, {"normalize", 1}, {"swiglu_limit", 7}, {"swiglu_alpha", 1.702}};
  std::vector<TensorMeta> inputs{floats({T, H}),    floats({T, E}),  floats({E, I2, H}),
                                 floats({E, H, I}), floats({E, I2}), floats({E, H})};
  std::vector<TensorMeta> outputs;
  const Status status = op.infer(inputs, attrs, outputs);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(outputs[0], floats({T, H}));
  inputs[4] = floats({E, I});
  EXPECT_THAT(op.infer(inputs, attrs, outputs).to_string(), HasSubstr("biases [E, 2I] and [E, H]"));
}

}  // namespace

}  // namespace heddle::ops
