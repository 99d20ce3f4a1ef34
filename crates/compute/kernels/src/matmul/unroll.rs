/// Writes `$body` out for every `$m` below `$count`, at most 16: a loop of that length would be left a loop,
/// and its sums in memory.
macro_rules! unroll {
    ($m:ident < $count:ident, $body:block) => {
        $crate::matmul::unroll!(@ $m $count $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $m:ident $count:ident $body:block $($i:literal)*) => {
        $(if $i < $count {
            #[allow(non_upper_case_globals)]
            const $m: usize = $i;
            $body
        })*
    };
}
pub(super) use unroll;
