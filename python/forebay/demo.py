"""demo"""
def run(*, with_spark: bool) -> int:
    return 0
