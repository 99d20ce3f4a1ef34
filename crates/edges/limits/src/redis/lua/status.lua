
return answer(1, 0)
