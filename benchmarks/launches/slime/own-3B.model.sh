MODEL_ARGS=(
   --swiglu
   --num-layers 28
   --hidden-size 2816
   --ffn-hidden-size 8192
   --num-attention-heads 22
   --group-query-attention
   --num-query-groups 2
   --use-rotary-position-embeddings
   --disable-bias-linear
   --normalization "RMSNorm"
   --norm-epsilon 1e-6
   --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
   --vocab-size 100352
   --kv-channels 128
)
